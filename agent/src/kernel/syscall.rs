//! The few `bpf(2)` commands that aya does not offer: batch look-up, detach, information on fds.
#![expect(unsafe_code, reason = "bpf(2) takes pointers in a struct")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Commands of `bpf(2)`: `enum bpf_cmd` in the kernel's include/uapi/linux/bpf.h.
mod command {
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const OBJ_GET: i32 = 7;
    pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
    pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const MAP_LOOKUP_BATCH: i32 = 24;
    pub(super) const LINK_DETACH: i32 = 34;
}

/// What the kernel says of a map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapInfo {
    /// `enum bpf_map_type`.
    pub map_type: u32,
    /// The map's id.
    pub id: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries it has room for.
    pub entries_max: u32,
    /// `BPF_F_*` flags.
    pub flags: u32,
}

/// What the kernel says of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The link's id.
    pub id: u32,
    /// The program behind it.
    pub program_id: u32,
    /// The interface an XDP or TCX link is attached to; 0 when it is attached to none any more.
    pub interface_index: u32,
}

/// The object pinned at `path`.
pub fn pinned(path: &Path) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attribute {
        path: u64,
        fd: u32,
        flags: u32,
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attribute = Attribute { path: path.as_ptr() as u64, fd: 0, flags: 0 };
    // SAFETY: the path is a C string that lives through the call.
    let fd = unsafe { bpf(command::OBJ_GET, &mut attribute) }?;
    // SAFETY: the kernel just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel says of the map behind `fd`.
pub fn map_info(fd: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let words = object_info(fd)?;
    Ok(MapInfo {
        map_type: words[0],
        id: words[1],
        key_size: words[2],
        value_size: words[3],
        entries_max: words[4],
        flags: words[5],
    })
}

/// What the kernel says of the XDP or TCX link behind `fd`.
pub fn link_info(fd: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    // type, id, prog_id, padding, then a union whose first member is ifindex for XDP and TCX.
    let words = object_info(fd)?;
    Ok(LinkInfo { id: words[1], program_id: words[2], interface_index: words[4] })
}

/// The name of the program with this id, as the kernel keeps it (at most 15 bytes).
pub fn program_name(id: u32) -> io::Result<String> {
    #[repr(C)]
    struct Attribute {
        id: u32,
        next_id: u32,
        flags: u32,
    }
    let mut attribute = Attribute { id, next_id: 0, flags: 0 };
    // SAFETY: the attribute holds no pointer.
    let fd = unsafe { bpf(command::PROG_GET_FD_BY_ID, &mut attribute) }?;
    // SAFETY: the kernel just opened this descriptor for us, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // struct bpf_prog_info has its 16-byte name at offset 64.
    let words = object_info(std::os::fd::AsFd::as_fd(&fd))?;
    let name: Vec<u8> = words[16..20].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Detaches the link behind `fd`, whoever else holds it (5.9).
pub fn detach_link(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut attribute = fd.as_raw_fd();
    // SAFETY: the attribute holds no pointer.
    unsafe { bpf(command::LINK_DETACH, &mut attribute) }.map(drop)
}

/// Reads one value of a map. `value` has the bytes the map gives: its value size; for per-CPU
/// maps that, rounded up to 8, for each possible CPU.
pub fn look_up(fd: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    #[repr(C)]
    struct Attribute {
        fd: u32,
        reserved: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let info = map_info(fd)?;
    expect_room(info.key_size as usize, key.len())?;
    expect_room(value_bytes(&info)?, value.len())?;
    let mut attribute = Attribute {
        fd: fd.as_raw_fd().cast_unsigned(),
        reserved: 0,
        key: key.as_ptr() as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: key and value are as long as the map's info says, and live through the call.
    unsafe { bpf(command::MAP_LOOKUP_ELEM, &mut attribute) }.map(drop)
}

/// What the batch commands are given (`union bpf_attr`, `batch`).
#[repr(C)]
struct BatchAttribute {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    fd: u32,
    element_flags: u64,
    flags: u64,
}

/// Counts the entries of a hash map (5.6), which may change meanwhile.
pub fn count_entries(fd: BorrowedFd<'_>) -> io::Result<u64> {
    /// Entries in one call: more than any bucket has.
    const BATCH: u32 = 4096;
    let info = map_info(fd)?;
    let mut keys = vec![0_u8; BATCH as usize * info.key_size as usize];
    let mut values = vec![0_u8; BATCH as usize * value_bytes(&info)?];
    let (mut from, mut to) = (0_u32, 0_u32);
    let mut sum = 0;
    for first in [true].into_iter().chain(std::iter::repeat(false)) {
        let mut attribute = BatchAttribute {
            in_batch: if first { 0 } else { (&raw mut from) as u64 },
            out_batch: (&raw mut to) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: BATCH,
            fd: fd.as_raw_fd().cast_unsigned(),
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: `keys` and `values` have room for `BATCH` entries of the sizes the map's info
        // says, the kernel writes at most that many, and a hash map's token is one u32.
        let result = unsafe { bpf(command::MAP_LOOKUP_BATCH, &mut attribute) };
        sum += u64::from(attribute.count);
        match result {
            Ok(_) => from = to,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sum)
}

/// Reads an array map from its first entry on, as many as `values` has room for, in one call
/// (5.6; per-CPU arrays 5.13). Returns how many it read.
pub fn look_up_batch(fd: BorrowedFd<'_>, values: &mut [u8]) -> io::Result<u32> {
    let info = map_info(fd)?;
    expect_room(4, info.key_size as usize)?;
    let count =
        u32::try_from(values.len() / value_bytes(&info)?).unwrap_or(u32::MAX).min(info.entries_max);
    let mut keys = vec![0_u32; count as usize];
    let mut out_batch = 0_u32;
    let mut attribute = BatchAttribute {
        in_batch: 0,
        out_batch: (&raw mut out_batch) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count,
        fd: fd.as_raw_fd().cast_unsigned(),
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: `keys` and `values` have room for `count` entries of the sizes the map's info says,
    // and the kernel writes at most that many; it also writes `count` back into the attribute.
    let result = unsafe { bpf(command::MAP_LOOKUP_BATCH, &mut attribute) };
    match result {
        // ENOENT: the end of the map was reached, which is what was asked for.
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(attribute.count),
    }
}

/// Bytes that one look-up in this map gives.
pub fn value_bytes(info: &MapInfo) -> io::Result<usize> {
    const PERCPU_HASH: u32 = 5;
    const PERCPU_ARRAY: u32 = 6;
    const LRU_PERCPU_HASH: u32 = 10;
    let value = info.value_size as usize;
    Ok(match info.map_type {
        PERCPU_HASH | PERCPU_ARRAY | LRU_PERCPU_HASH => {
            value.next_multiple_of(8) * possible_cpu_count()? as usize
        }
        _ => value,
    })
}

/// CPUs this machine can ever have: for how many the kernel keeps per-CPU values.
pub fn possible_cpu_count() -> io::Result<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    cpu_list_count(text.trim())
        .ok_or_else(|| io::Error::other(format!("cannot read the CPU list {text:?}")))
}

/// CPUs in a list like `0-3,8`.
fn cpu_list_count(list: &str) -> Option<u32> {
    list.split(',')
        .map(|range| match range.split_once('-') {
            Some((first, last)) => {
                let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
                last.checked_sub(first)?.checked_add(1)
            }
            None => range.parse::<u32>().ok().map(|_| 1),
        })
        .sum()
}

fn expect_room(wanted: usize, given: usize) -> io::Result<()> {
    if wanted == given {
        return Ok(());
    }
    Err(io::Error::other(format!("the map wants {wanted} bytes, not {given}")))
}

/// The first words of the kernel's info struct of an object.
fn object_info(fd: BorrowedFd<'_>) -> io::Result<[u32; 24]> {
    #[repr(C)]
    struct Attribute {
        fd: u32,
        info_bytes: u32,
        info: u64,
    }
    let mut info = [0_u32; 24];
    let mut attribute = Attribute {
        fd: fd.as_raw_fd().cast_unsigned(),
        info_bytes: size_of_val(&info) as u32,
        info: info.as_mut_ptr() as u64,
    };
    // SAFETY: the kernel writes at most `info_bytes` to `info`, which has them; all zero, it asks
    // for no further buffer to be filled.
    unsafe { bpf(command::OBJ_GET_INFO_BY_FD, &mut attribute) }?;
    Ok(info)
}

/// # Safety
///
/// `T` is the start of `union bpf_attr` as this command reads it, without padding; pointers in it
/// are valid for what the command reads and writes through them.
unsafe fn bpf<T>(command: i32, attribute: &mut T) -> io::Result<i32> {
    // SAFETY: the attribute is valid for its size, which is told; the rest is the caller's promise.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, core::ptr::from_mut(attribute), size_of::<T>())
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(result).expect("bpf(2) returns a descriptor or zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(cpu_list_count("0"), Some(1));
        assert_eq!(cpu_list_count("0-1"), Some(2));
        assert_eq!(cpu_list_count("0-3,8,10-11"), Some(7));
        assert_eq!(cpu_list_count("3-1"), None);
        assert_eq!(cpu_list_count("zero"), None);
    }
}
