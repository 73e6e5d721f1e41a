//! A test's variant of the kernel object that does everything rightly in a test-run and nothing on an
//! interface: the agent must notice once packets come, and put back what steered before.
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

/// See its namesake in `main.rs`.
const ASKS_FOR_HEALTH: bool = true;
/// See its namesake in `main.rs`.
const STEERS_EVERYWHERE: bool = false;

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
