//! The few `bpf(2)` commands that aya does not offer: whole maps, links, information on fds.
#![expect(unsafe_code, reason = "bpf(2) takes pointers in a struct")]

/// Entries of maps, one and many.
mod entries;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

pub use self::entries::{
    count_entries, insert_new, look_up, look_up_batch, read_entries, update, update_entries,
};

/// Commands of `bpf(2)`: `enum bpf_cmd` in the kernel's include/uapi/linux/bpf.h.
mod command {
    pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const MAP_UPDATE_ELEM: i32 = 2;
    pub(super) const OBJ_PIN: i32 = 6;
    pub(super) const OBJ_GET: i32 = 7;
    pub(super) const PROG_GET_FD_BY_ID: i32 = 13;
    pub(super) const OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const MAP_LOOKUP_BATCH: i32 = 24;
    pub(super) const MAP_UPDATE_BATCH: i32 = 26;
    pub(super) const LINK_CREATE: i32 = 28;
    pub(super) const LINK_UPDATE: i32 = 29;
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

/// What pinning and opening a pin are given (`union bpf_attr`, `BPF_OBJ_*`).
#[repr(C)]
struct PinAttribute {
    path: u64,
    fd: i32,
    flags: u32,
}

/// The object pinned at `path`.
pub fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attribute = PinAttribute { path: path.as_ptr() as u64, fd: 0, flags: 0 };
    // SAFETY: the path is a C string that lives through the call.
    let fd = unsafe { bpf(command::OBJ_GET, &mut attribute) }?;
    // SAFETY: the kernel just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Pins the object behind `fd` at `path`, where nothing may be.
pub fn pin(fd: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attribute = PinAttribute { path: path.as_ptr() as u64, fd: fd.as_raw_fd(), flags: 0 };
    // SAFETY: the path is a C string that lives through the call.
    unsafe { bpf(command::OBJ_PIN, &mut attribute) }.map(drop)
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

/// The id of the program behind `fd`.
pub fn program_id(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // type, id.
    Ok(object_info(fd)?[1])
}

/// The program with this id; for CAP_SYS_ADMIN alone.
pub fn program(id: u32) -> io::Result<OwnedFd> {
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
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The name of the program with this id, as the kernel keeps it (at most 15 bytes).
pub fn program_name(id: u32) -> io::Result<String> {
    let fd = program(id)?;
    // struct bpf_prog_info has its 16-byte name at offset 64.
    let words = object_info(fd.as_fd())?;
    let name: Vec<u8> = words[16..20].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Puts a program in the place of the one behind a link, in one step: every packet meets the one
/// or the other (5.9).
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attribute {
        link: i32,
        program: i32,
        flags: u32,
        old_program: u32,
    }
    let (link, program) = (link.as_raw_fd(), program.as_raw_fd());
    let mut attribute = Attribute { link, program, flags: 0, old_program: 0 };
    // SAFETY: the attribute holds no pointer.
    unsafe { bpf(command::LINK_UPDATE, &mut attribute) }.map(drop)
}

/// Attaches an XDP program to an interface by a new link (5.9), in the driver or in the stack.
pub fn link_xdp(
    program: BorrowedFd<'_>,
    interface_index: u32,
    native: bool,
) -> io::Result<OwnedFd> {
    /// Of `enum bpf_attach_type`.
    const BPF_XDP: u32 = 37;
    /// Of include/uapi/linux/if_link.h.
    const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
    const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
    #[repr(C)]
    struct Attribute {
        program: i32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let flags = if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE };
    let program = program.as_raw_fd();
    let mut attribute =
        Attribute { program, interface: interface_index, attach_type: BPF_XDP, flags };
    // SAFETY: the attribute holds no pointer.
    let fd = unsafe { bpf(command::LINK_CREATE, &mut attribute) }?;
    // SAFETY: the kernel just opened this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Detaches the link behind `fd`, whoever else holds it (5.9).
pub fn detach_link(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut attribute = fd.as_raw_fd();
    // SAFETY: the attribute holds no pointer.
    unsafe { bpf(command::LINK_DETACH, &mut attribute) }.map(drop)
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
