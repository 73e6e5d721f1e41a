//! Tests of the rules as a whole, over the model's tables.

/// Every living backend is found, and none more often than another.
mod evenness;
/// Packets whose expected fate is written out.
mod fixtures;
/// Random histories of health, membership and flows: who must stay, stays.
mod histories;
/// What is read of packets, written out.
mod parsing;
/// Answers, byte by byte.
mod replies;
