//! The kernel object: two entry points and the maps. It adapts; `sickbay_shared::steer` decides.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

/// The program that explains.
mod explain;
/// The maps, by the names that `sickbay_shared::abi` gives them.
mod maps;
/// Licence and panic handler.
mod object;
/// Packets: the bytes between two pointers.
mod packet;
/// The maps as the decision's tables and counters.
mod tables;
/// The entry point of traffic control.
mod tc;
/// The entry point of a network interface's driver.
mod xdp;

/// Whether the decision asks for a backend's bits; `untested.rs`, a bench's, does not.
const ASKS_FOR_HEALTH: bool = true;
/// Whether packets of every interface are steered; `idle.rs`, a test's, only plays that it does.
const STEERS_EVERYWHERE: bool = true;

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
