//! Elements and entries of maps, read and written one by one.
#![expect(unsafe_code, reason = "aya asks for the promise that map values are plain bytes")]

use std::collections::HashMap;

use aya::Ebpf;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, HashMap as HashTable, Map, MapData, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use sickbay_shared::abi::{self, BackendCounters, GlobalCounters, ServiceCounters};
use sickbay_shared::pod::Pod;

use super::{SERVICES, Steering, WORDS};

/// A map's key or value; a type of another crate may not promise it itself.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Raw<T>(T);

// SAFETY: transparent over a type that promises to be its bytes and nothing else.
unsafe impl<T: Pod> aya::Pod for Raw<T> {}

impl Steering {
    /// Backend indices that can have been counted: up to the last one in use, and some beyond.
    pub(super) fn used_backends(&self) -> u32 {
        let used = self.held.backends.iter().rposition(|backend| backend.generation != 0);
        (used.unwrap_or(0) as u32 + 64).min(WORDS * 64)
    }

    pub(super) fn zero_counters(&mut self) {
        let backends = self.used_backends();
        self.zero::<GlobalCounters>(abi::GLOBAL_COUNTERS, 1);
        self.zero::<ServiceCounters>(abi::SERVICE_COUNTERS, SERVICES);
        self.zero::<BackendCounters>(abi::BACKEND_COUNTERS, backends);
    }

    pub(super) fn zero<T: Pod>(&mut self, name: &str, count: u32) {
        let mut map: PerCpuArray<&mut MapData, Raw<T>> = typed_mut(&mut self.ebpf, name);
        let cpus = nr_cpus().expect("the number of CPUs");
        for index in 0..count {
            let zeros = PerCpuValues::try_from(vec![Raw(T::default()); cpus]).expect("all CPUs");
            map.set(index, zeros, 0).expect("setting a counter");
        }
    }

    pub(super) fn read_counters<T: Pod + PartialEq>(
        &self,
        name: &str,
        count: u32,
    ) -> HashMap<u32, T> {
        let map: PerCpuArray<&MapData, Raw<T>> = typed(&self.ebpf, name);
        let mut all = HashMap::new();
        for index in 0..count {
            let per_cpu = map.get(&index, 0).expect("reading a counter");
            let sum = sum(per_cpu.iter().map(|raw| &raw.0));
            if sum != T::default() {
                all.insert(index, sum);
            }
        }
        all
    }

    /// Writes those elements that are not there already.
    pub(super) fn put_array<T: Pod + PartialEq>(&mut self, name: &str, old: &[T], new: &[T]) {
        let mut map: Array<&mut MapData, Raw<T>> = typed_mut(&mut self.ebpf, name);
        for (index, value) in new.iter().enumerate() {
            if old.get(index) != Some(value) {
                map.set(index as u32, Raw(*value), 0).expect("setting an element");
            }
        }
        for index in new.len()..old.len() {
            map.set(index as u32, Raw(T::default()), 0).expect("clearing an element");
        }
    }

    pub(super) fn read_element<T: Pod>(&self, name: &str, index: u32) -> T {
        let map: Array<&MapData, Raw<T>> = typed(&self.ebpf, name);
        map.get(&index, 0).expect("reading an element").0
    }

    pub(super) fn put_hash<K, V>(&mut self, name: &str, entries: HashMap<K, V>)
    where
        K: Pod + Eq + std::hash::Hash,
        V: Pod,
    {
        let present: Vec<K> = self.read_hash::<K, V>(name).into_keys().collect();
        let mut map: HashTable<&mut MapData, Raw<K>, Raw<V>> = typed_mut(&mut self.ebpf, name);
        for key in present {
            map.remove(&Raw(key)).expect("removing an entry");
        }
        for (key, value) in entries {
            map.insert(Raw(key), Raw(value), 0).expect("inserting an entry");
        }
    }

    pub(super) fn read_hash<K, V>(&self, name: &str) -> HashMap<K, V>
    where
        K: Pod + Eq + std::hash::Hash,
        V: Pod,
    {
        let map: HashTable<&MapData, Raw<K>, Raw<V>> = typed(&self.ebpf, name);
        map.iter().map(|entry| entry.expect("reading a map")).map(|(k, v)| (k.0, v.0)).collect()
    }

    /// Puts these prefixes in the place of those.
    pub(super) fn put_trie<K: Pod, const BYTES: usize>(
        &mut self,
        name: &str,
        old: &[(K, u32)],
        new: &[(K, u32)],
    ) {
        let mut map: LpmTrie<&mut MapData, [u8; BYTES], u32> = typed_mut(&mut self.ebpf, name);
        let key = |key: &K| {
            let (bits, data) = key.as_bytes().split_at(4);
            let bits = u32::from_ne_bytes(bits.try_into().expect("four bytes"));
            Key::new(bits, data.try_into().expect("the key's size"))
        };
        for (prefix, _) in old {
            map.remove(&key(prefix)).expect("removing a prefix");
        }
        for (prefix, number) in new {
            map.insert(&key(prefix), number, 0).expect("inserting a prefix");
        }
    }
}

fn typed<'a, M>(ebpf: &'a Ebpf, name: &str) -> M
where
    M: TryFrom<&'a Map, Error: std::fmt::Debug>,
{
    let map = ebpf.map(name).unwrap_or_else(|| panic!("no map {name} in the object"));
    map.try_into().unwrap_or_else(|error| panic!("map {name}: {error:?}"))
}

fn typed_mut<'a, M>(ebpf: &'a mut Ebpf, name: &str) -> M
where
    M: TryFrom<&'a mut Map, Error: std::fmt::Debug>,
{
    let map = ebpf.map_mut(name).unwrap_or_else(|| panic!("no map {name} in the object"));
    map.try_into().unwrap_or_else(|error| panic!("map {name}: {error:?}"))
}

/// The sum of counters, which are structs of u64 alone.
///
/// # Panics
///
/// When they are not.
pub fn sum<'a, T: Pod>(all: impl Iterator<Item = &'a T>) -> T {
    let mut words = vec![0_u64; size_of::<T>() / 8];
    for counters in all {
        for (word, bytes) in words.iter_mut().zip(counters.as_bytes().chunks_exact(8)) {
            *word += u64::from_bytes(bytes).expect("eight bytes");
        }
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    T::from_bytes(&bytes).expect("as many bytes")
}
