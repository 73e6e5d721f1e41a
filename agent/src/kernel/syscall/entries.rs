//! Entries of maps: one, a part of a hash, a whole array.
#![expect(unsafe_code, reason = "bpf(2) takes pointers in a struct")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::{MapInfo, bpf, command, expect_room, map_info, value_bytes};

/// Flag of an update: leave an entry of that key as it is.
const BPF_NOEXIST: u64 = 1;

/// What reading and writing one entry are given (`union bpf_attr`, `BPF_MAP_*_ELEM`).
#[repr(C)]
struct ElementAttribute {
    fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Reads one value of a map. `value` has the bytes the map gives: its value size; for per-CPU
/// maps that, rounded up to 8, for each possible CPU.
pub fn look_up(fd: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let info = map_info(fd)?;
    expect_room(info.key_size as usize, key.len())?;
    expect_room(value_bytes(&info)?, value.len())?;
    let mut attribute = ElementAttribute {
        fd: fd.as_raw_fd().cast_unsigned(),
        reserved: 0,
        key: key.as_ptr() as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: key and value are as long as the map's info says, and live through the call.
    unsafe { bpf(command::MAP_LOOKUP_ELEM, &mut attribute) }.map(drop)
}

/// Writes one value of a map whose sizes `info` tells, over the one that was there.
pub fn update(fd: BorrowedFd<'_>, info: &MapInfo, key: &[u8], value: &[u8]) -> io::Result<()> {
    write(fd, info, (key, value), 0)
}

/// The same where there is no such key; whether there was none.
pub fn insert_new(
    fd: BorrowedFd<'_>,
    info: &MapInfo,
    key: &[u8],
    value: &[u8],
) -> io::Result<bool> {
    match write(fd, info, (key, value), BPF_NOEXIST) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

fn write(
    fd: BorrowedFd<'_>,
    info: &MapInfo,
    (key, value): (&[u8], &[u8]),
    flags: u64,
) -> io::Result<()> {
    expect_room(info.key_size as usize, key.len())?;
    expect_room(value_bytes(info)?, value.len())?;
    let mut attribute = ElementAttribute {
        fd: fd.as_raw_fd().cast_unsigned(),
        reserved: 0,
        key: key.as_ptr() as u64,
        value: value.as_ptr() as u64,
        flags,
    };
    // SAFETY: key and value are as long as the map's info says, and live through the call.
    unsafe { bpf(command::MAP_UPDATE_ELEM, &mut attribute) }.map(drop)
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
    let mut sum = 0;
    read_entries(fd, |_, _, count| {
        sum += u64::from(count);
        Ok(())
    })?;
    Ok(sum)
}

/// Reads a hash map (5.6), which may change meanwhile: `each` is given the keys of a part of it one
/// after the other, their values likewise, and how many there are.
pub fn read_entries(
    fd: BorrowedFd<'_>,
    mut each: impl FnMut(&[u8], &[u8], u32) -> io::Result<()>,
) -> io::Result<()> {
    /// Entries in one call: more than any bucket has.
    const BATCH: u32 = 4096;
    let info = map_info(fd)?;
    let (key_bytes, value_bytes) = (info.key_size as usize, value_bytes(&info)?);
    let mut keys = vec![0_u8; BATCH as usize * key_bytes];
    let mut values = vec![0_u8; BATCH as usize * value_bytes];
    let (mut from, mut to) = (0_u32, 0_u32);
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
        let count = attribute.count as usize;
        if 0 < count {
            each(&keys[..count * key_bytes], &values[..count * value_bytes], attribute.count)?;
        }
        match result {
            Ok(_) => from = to,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes entries into a hash map whose sizes `info` tells (5.6), over those that were there.
pub fn update_entries(
    fd: BorrowedFd<'_>,
    info: &MapInfo,
    keys: &[u8],
    values: &[u8],
) -> io::Result<()> {
    let count = keys.len() / info.key_size as usize;
    expect_room(count * info.key_size as usize, keys.len())?;
    expect_room(count * value_bytes(info)?, values.len())?;
    let mut attribute = BatchAttribute {
        in_batch: 0,
        out_batch: 0,
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count: u32::try_from(count).map_err(io::Error::other)?,
        fd: fd.as_raw_fd().cast_unsigned(),
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: `keys` and `values` hold `count` entries of the sizes the map's info says.
    unsafe { bpf(command::MAP_UPDATE_BATCH, &mut attribute) }.map(drop)
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
