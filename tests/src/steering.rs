//! The steering programs in this kernel, run packet by packet over tables that a test gives.
#![expect(unsafe_code, reason = "aya asks for the promise that map values are plain bytes")]

use std::collections::HashMap;
use std::env;
use std::path::PathBuf;

use aya::maps::{Array, HashMap as HashTable, Map, MapData, PerCpuArray, PerCpuValues};
use aya::programs::{SchedClassifier, TestRun, TestRunOptions, Xdp};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader};
use sickbay_shared::abi::{
    self, BackendCounters, FlowEntry, FlowKeyV4, FlowKeyV6, GlobalCounters, ServiceCounters,
};
use sickbay_shared::limits::GROUP_WORDS;
use sickbay_shared::model::{ModelCounters, ModelTables};
use sickbay_shared::packet::Flow;
use sickbay_shared::pod::Pod;

/// Bitmap words that the tables of a test may have.
pub const WORDS: u32 = 64;
/// Services that the tables of a test may have.
pub const SERVICES: u32 = 16;
const SLOTS: u32 = 4096;
const FLOWS: u32 = 65_536;

/// Which program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// `sickbay_xdp`
    Xdp,
    /// `sickbay_tc`
    Tc,
}

impl Entrance {
    /// Whether the kernel runs a program on this frame.
    ///
    /// Its test-run refuses an empty packet, and an skb of IP that ends in its IP header
    /// (`bpf_prog_test_run_skb` in net/bpf/test_run.c, seen with 6.18); a real one may.
    #[must_use]
    pub fn can_run(self, frame: &[u8]) -> bool {
        let header_bytes = match (self, frame.get(12..14)) {
            (Self::Tc, Some([0x08, 0x00])) => 20,
            (Self::Tc, Some([0x86, 0xdd])) => 40,
            _ => 1,
        };
        14 + header_bytes <= frame.len()
    }
}

/// What came of one packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The program's return value.
    pub action: u32,
    /// The packet afterwards.
    pub frame: Vec<u8>,
}

/// A map's key or value; a type of another crate may not promise it itself.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Raw<T>(T);

// SAFETY: transparent over a type that promises to be its bytes and nothing else.
unsafe impl<T: Pod> aya::Pod for Raw<T> {}

/// The loaded object, and the tables as they were last put into its maps.
pub struct Steering {
    ebpf: Ebpf,
    held: ModelTables,
}

impl Steering {
    /// Loads the object that `SICKBAY_EBPF_OBJECT` names, or the one `cargo xtask build-ebpf` made.
    ///
    /// # Panics
    ///
    /// When this is not root, there is no object, or the kernel refuses it: these tests cannot be
    /// passed by not running.
    #[must_use]
    pub fn load() -> Self {
        let object = object();
        let mut ebpf = EbpfLoader::new()
            .map_max_entries(abi::TAKES_NEW, WORDS)
            .map_max_entries(abi::SERVES_OLD, WORDS)
            .map_max_entries(abi::ALLOWED, WORDS)
            .map_max_entries(abi::GROUP_COUNTS, WORDS / GROUP_WORDS)
            .map_max_entries(abi::BACKENDS, WORDS * 64)
            .map_max_entries(abi::BACKEND_COUNTERS, WORDS * 64)
            .map_max_entries(abi::SERVICES, SERVICES)
            .map_max_entries(abi::SERVICE_KEYS, SERVICES)
            .map_max_entries(abi::SERVICE_COUNTERS, SERVICES)
            .map_max_entries(abi::SLOTS, SLOTS)
            .map_max_entries(abi::FLOWS_V4, FLOWS)
            .map_max_entries(abi::FLOWS_V6, FLOWS)
            .load_file(&object)
            .unwrap_or_else(|error| {
                panic!("loading {} (as root, after xtask build-ebpf): {error:?}", object.display())
            });
        let xdp: &mut Xdp = program(&mut ebpf, abi::XDP_PROGRAM);
        xdp.load().expect("the verifier accepts the XDP program");
        let steps = xdp.info().expect("program information").verified_instruction_count();
        println!("{}: {steps:?} steps of the verifier", abi::XDP_PROGRAM);
        let tc: &mut SchedClassifier = program(&mut ebpf, abi::TC_PROGRAM);
        tc.load().expect("the verifier accepts the TC program");
        let steps = tc.info().expect("program information").verified_instruction_count();
        println!("{}: {steps:?} steps of the verifier", abi::TC_PROGRAM);
        Self { ebpf, held: ModelTables::new(WORDS) }
    }

    /// Whether a map of this name is in the object.
    #[must_use]
    pub fn has_map(&self, name: &str) -> bool {
        self.ebpf.map(name).is_some()
    }

    /// Puts tables into the maps, entries included, and sets all counters to zero.
    pub fn put(&mut self, tables: &ModelTables) {
        let mut new = tables.clone();
        new.takes_new.resize(WORDS as usize, 0);
        new.serves_old.resize(WORDS as usize, 0);
        new.allowed.resize(WORDS as usize, 0);
        new.group_counts.resize((WORDS / GROUP_WORDS) as usize, 0);
        new.backends.resize(WORDS as usize * 64, abi::Backend::default());
        self.zero_counters();
        let old = std::mem::take(&mut self.held);
        self.put_array(abi::TAKES_NEW, &old.takes_new, &new.takes_new);
        self.put_array(abi::SERVES_OLD, &old.serves_old, &new.serves_old);
        self.put_array(abi::ALLOWED, &old.allowed, &new.allowed);
        self.put_array(abi::GROUP_COUNTS, &old.group_counts, &new.group_counts);
        self.put_array(abi::POOLS, &old.pools, &new.pools);
        self.put_array(abi::POOL_COUNTS, &old.pool_counts, &new.pool_counts);
        self.put_array(abi::BACKENDS, &old.backends, &new.backends);
        self.put_array(abi::SLOTS, &old.slots, &new.slots);
        self.put_array(abi::HEADER, &[old.header], &[new.header]);
        self.put_array(abi::SERVICES, &old.services, &new.services);
        self.put_hash(abi::SERVICE_KEYS, new.service_keys.clone());
        let (mut v4, mut v6) = (HashMap::new(), HashMap::new());
        for (flow, entry) in new.entries.borrow().iter() {
            let bytes: Vec<u8> = flow.key.iter().flat_map(|word| word.to_ne_bytes()).collect();
            if flow.family == 4 {
                v4.insert(FlowKeyV4::from_bytes(&bytes[..16]).expect("sixteen bytes"), *entry);
            } else {
                v6.insert(FlowKeyV6::from_bytes(&bytes).expect("forty bytes"), *entry);
            }
        }
        self.put_hash(abi::FLOWS_V4, v4);
        self.put_hash(abi::FLOWS_V6, v6);
        self.held = new;
    }

    /// Runs one packet through a program.
    pub fn run(&mut self, entrance: Entrance, frame: &[u8]) -> Ran {
        let mut data_out = vec![0; frame.len() + 64];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut data_out),
            ..TestRunOptions::default()
        };
        let result = match entrance {
            Entrance::Xdp => program::<Xdp>(&mut self.ebpf, abi::XDP_PROGRAM).test_run(options),
            Entrance::Tc => {
                program::<SchedClassifier>(&mut self.ebpf, abi::TC_PROGRAM).test_run(options)
            }
        }
        .unwrap_or_else(|error| panic!("test-run of {frame:02x?}: {error:?}"));
        data_out.truncate(result.data_size_out as usize);
        Ran { action: result.return_value, frame: data_out }
    }

    /// The entries that are in the maps.
    #[must_use]
    pub fn entries(&self) -> HashMap<Flow, FlowEntry> {
        let word = |bytes: [u8; 4]| u32::from_ne_bytes(bytes);
        let words = |bytes: [u8; 16]| {
            let word = |at: usize| word(bytes[at..at + 4].try_into().expect("four bytes"));
            [word(0), word(4), word(8), word(12)]
        };
        let ports = |[a, b]: [u8; 2], [c, d]: [u8; 2]| word([a, b, c, d]);
        let v4 = self.read_hash::<FlowKeyV4, FlowEntry>(abi::FLOWS_V4);
        let v6 = self.read_hash::<FlowKeyV6, FlowEntry>(abi::FLOWS_V6);
        let v4 = v4.into_iter().map(|(key, entry)| {
            let ports = ports(key.source_port, key.destination_port);
            let (source, destination) = (word(key.source), word(key.destination));
            (Flow::v4(source, destination, ports, key.protocol), entry)
        });
        let v6 = v6.into_iter().map(|(key, entry)| {
            let ports = ports(key.source_port, key.destination_port);
            let (source, destination) = (words(key.source), words(key.destination));
            (Flow::v6(source, destination, ports, key.protocol), entry)
        });
        v4.chain(v6).collect()
    }

    /// All counters that are not zero, added up over the CPUs.
    #[must_use]
    pub fn counters(&self) -> ModelCounters {
        let global = self.read_counters::<GlobalCounters>(abi::GLOBAL_COUNTERS, 1);
        let backends = self.used_backends();
        ModelCounters {
            global: global.get(&0).copied().unwrap_or_default().into(),
            services: self.read_counters(abi::SERVICE_COUNTERS, SERVICES).into(),
            backends: self.read_counters(abi::BACKEND_COUNTERS, backends).into(),
        }
    }

    /// Backend indices that can have been counted: up to the last one in use, and some beyond.
    fn used_backends(&self) -> u32 {
        let used = self.held.backends.iter().rposition(|backend| backend.generation != 0);
        (used.unwrap_or(0) as u32 + 64).min(WORDS * 64)
    }

    fn zero_counters(&mut self) {
        let backends = self.used_backends();
        self.zero::<GlobalCounters>(abi::GLOBAL_COUNTERS, 1);
        self.zero::<ServiceCounters>(abi::SERVICE_COUNTERS, SERVICES);
        self.zero::<BackendCounters>(abi::BACKEND_COUNTERS, backends);
    }

    fn zero<T: Pod>(&mut self, name: &str, count: u32) {
        let mut map: PerCpuArray<&mut MapData, Raw<T>> = typed_mut(&mut self.ebpf, name);
        let cpus = nr_cpus().expect("the number of CPUs");
        for index in 0..count {
            let zeros = PerCpuValues::try_from(vec![Raw(T::default()); cpus]).expect("all CPUs");
            map.set(index, zeros, 0).expect("setting a counter");
        }
    }

    fn read_counters<T: Pod + PartialEq>(&self, name: &str, count: u32) -> HashMap<u32, T> {
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
    fn put_array<T: Pod + PartialEq>(&mut self, name: &str, old: &[T], new: &[T]) {
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

    fn put_hash<K, V>(&mut self, name: &str, entries: HashMap<K, V>)
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

    fn read_hash<K, V>(&self, name: &str) -> HashMap<K, V>
    where
        K: Pod + Eq + std::hash::Hash,
        V: Pod,
    {
        let map: HashTable<&MapData, Raw<K>, Raw<V>> = typed(&self.ebpf, name);
        map.iter().map(|entry| entry.expect("reading a map")).map(|(k, v)| (k.0, v.0)).collect()
    }
}

/// Where the object is: what `SICKBAY_EBPF_OBJECT` names, or what `cargo xtask build-ebpf` made.
#[must_use]
pub fn object() -> PathBuf {
    if let Some(path) = env::var_os("SICKBAY_EBPF_OBJECT") {
        return path.into();
    }
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace.join(target).join("bpf/sickbay.bpf.o")
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut P
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error: std::fmt::Debug>,
{
    ebpf.program_mut(name)
        .unwrap_or_else(|| panic!("no program {name} in the object"))
        .try_into()
        .expect("a program of this type")
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
fn sum<'a, T: Pod>(all: impl Iterator<Item = &'a T>) -> T {
    let mut words = vec![0_u64; size_of::<T>() / 8];
    for counters in all {
        for (word, bytes) in words.iter_mut().zip(counters.as_bytes().chunks_exact(8)) {
            *word += u64::from_bytes(bytes).expect("eight bytes");
        }
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    T::from_bytes(&bytes).expect("as many bytes")
}
