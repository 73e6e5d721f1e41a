//! The peer's own tables: as many backends as ours, all behind one gateway, which suits it best.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{MapCore as _, MapFlags};

use super::BACKENDS;
use super::kernel::{Kernel, put_array};

/// The veth whose neighbour is the gateway to all of the peer's backends.
const INTERFACES: [&str; 2] = ["peer0", "peer1"];
const ADDRESS: &str = "198.18.0.1/30";
const GATEWAY: &str = "198.18.0.2";
const BACKENDS_PREFIX: &str = "10.64.0.0/10";
const SLOT_COUNT: u32 = 65_537;

/// Puts the peer's tables into force, and what its FIB look-ups need.
pub(crate) fn put_tables(kernel: &Kernel) -> Result<()> {
    let [one, other] = INTERFACES;
    ip(&["link", "add", one, "type", "veth", "peer", "name", other])?;
    ip(&["link", "set", one, "up"])?;
    ip(&["link", "set", other, "up"])?;
    ip(&["address", "add", ADDRESS, "dev", one])?;
    ip(&["neighbour", "add", GATEWAY, "lladdr", "02:00:00:00:00:02", "dev", one])?;
    ip(&["route", "add", BACKENDS_PREFIX, "via", GATEWAY])?;
    fs::write("/proc/sys/net/ipv4/conf/all/forwarding", "1").context("forwarding")?;
    let service =
        u64::from(u32::from_ne_bytes([203, 0, 113, 1])) | u64::from(80_u16.to_be()) << 32 | 6 << 48;
    let services = kernel.peer_map("PEER_SERVICES");
    services.update(&service.to_ne_bytes(), &0_u32.to_ne_bytes(), MapFlags::ANY)?;
    let slots: Vec<u32> = (0..SLOT_COUNT).map(|slot| slot % BACKENDS).collect();
    put_array(&kernel.peer_map("PEER_SLOTS"), &slots)?;
    let addresses: Vec<u32> = (0..BACKENDS).map(|index| (0x0a40_0000 + index).to_be()).collect();
    put_array(&kernel.peer_map("PEER_BACKENDS"), &addresses)
}

fn ip(words: &[&str]) -> Result<()> {
    ensure!(Command::new("ip").args(words).status()?.success(), "ip {} failed", words.join(" "));
    Ok(())
}
