//! The steering programs in this kernel, run packet by packet over tables that a test gives.

/// Programs on an interface, where real packets come by.
mod attach;
/// Elements and entries, read and written one by one.
mod elements;
/// The entries of SYNs.
mod embryonic;
/// The marks of flows that may have entries.
mod marks;
/// The programs, run packet by packet.
mod runner;

pub use self::elements::sum;
pub use self::runner::Runner;

use self::embryonic::Embryonic;
use self::marks::Marks;

use std::collections::{HashMap, HashSet};
use std::env;
use std::fmt::Debug;
use std::path::PathBuf;

use aya::maps::{MapData, RingBuf};
use aya::programs::{
    Program, ProgramError, ProgramInfo, SchedClassifier, TestRun, TestRunOptions, Xdp,
};
use aya::{Ebpf, EbpfLoader};
use sickbay_shared::abi::{
    self, Budget, DropRecord, EXPLANATION_OFFSET, Explanation, FlowEntry, FlowKeyV4, FlowKeyV6,
    FragmentEntry, FragmentKey, GlobalCounters, Header, Heartbeat,
};
use sickbay_shared::embryonic::{seed, tag};
use sickbay_shared::limits::{FLOW_MARKS_LINES, GROUP_WORDS};
use sickbay_shared::model::{ModelCounters, ModelTables};
use sickbay_shared::packet::Flow;
use sickbay_shared::pod::Pod;
use sickbay_shared::tables::Store;

/// Bitmap words that the tables of a test may have.
pub const WORDS: u32 = 64;
/// Services that the tables of a test may have.
pub const SERVICES: u32 = 16;
const SLOTS: u32 = 4096;
/// Entries that each map of them holds.
const FLOWS: u32 = 65_536;
/// Shards that the tables of a test may have.
const SHARDS: u32 = 4;

/// Of include/uapi/linux/bpf.h.
const XDP_PASS: u32 = 2;

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

/// The loaded object, and the tables as they were last put into its maps.
pub struct Steering {
    ebpf: Ebpf,
    drops: RingBuf<MapData>,
    marks: Marks,
    embryonic: Embryonic,
    held: ModelTables,
    costs: [Cost; 3],
}

/// What a program cost the verifier, and what it has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Its name in the object.
    pub program: &'static str,
    /// Instructions that the verifier walked through, paths that share some counted apart.
    pub steps: u32,
    /// Instructions as the kernel runs them, before its compiler.
    pub instructions: u32,
}

impl Cost {
    fn new(program: &'static str, info: Result<ProgramInfo, ProgramError>) -> Self {
        let info = info.expect("program information");
        Self {
            program,
            steps: info.verified_instruction_count().expect("since 5.16"),
            instructions: info.size_translated().expect("root may see it") / 8,
        }
    }
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
            .map_max_entries(abi::HEARTBEATS, SHARDS)
            .map_max_entries(abi::SERVICE_COUNTERS, SERVICES)
            .map_max_entries(abi::SLOTS, SLOTS)
            .map_max_entries(abi::FLOW_MARKS, FLOW_MARKS_LINES)
            .map_max_entries(abi::FLOWS_V4, FLOWS)
            .map_max_entries(abi::FLOWS_V6, FLOWS)
            .load_file(&object)
            .unwrap_or_else(|error| {
                panic!("loading {} (as root, after xtask build-ebpf): {error:?}", object.display())
            });
        let xdp: &mut Xdp = program_mut(&mut ebpf, abi::XDP_PROGRAM);
        xdp.load().expect("the verifier accepts the XDP program");
        let xdp = Cost::new(abi::XDP_PROGRAM, xdp.info());
        let tc: &mut SchedClassifier = program_mut(&mut ebpf, abi::TC_PROGRAM);
        tc.load().expect("the verifier accepts the TC program");
        let tc = Cost::new(abi::TC_PROGRAM, tc.info());
        let explain: &mut Xdp = program_mut(&mut ebpf, abi::EXPLAIN_PROGRAM);
        explain.load().expect("the verifier accepts the program that explains");
        let explain = Cost::new(abi::EXPLAIN_PROGRAM, explain.info());
        let drops = ebpf.take_map(abi::DROPS).expect("a ring buffer in the object");
        let drops = RingBuf::try_from(drops).expect("a ring buffer");
        let marks = Marks::of(ebpf.map(abi::FLOW_MARKS).expect("the marks' map"));
        let embryonic = Embryonic::of(ebpf.map(abi::EMBRYONIC).expect("the map of SYNs' entries"));
        // What the maps hold when they are new.
        let mut held = ModelTables::new(WORDS);
        held.header = Header::default();
        Self { ebpf, drops, marks, embryonic, held, costs: [xdp, tc, explain] }
    }

    /// What each program cost the verifier when it was loaded.
    #[must_use]
    pub const fn costs(&self) -> &[Cost; 3] {
        &self.costs
    }

    /// Whether a map of this name is in the object.
    #[must_use]
    pub fn has_map(&self, name: &str) -> bool {
        self.ebpf.map(name).is_some() || name == abi::DROPS
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
        let (old_beats, beats) = (heartbeats(&old), heartbeats(&new));
        self.put_array(abi::HEARTBEATS, &old_beats, &beats);
        self.put_trie::<_, 20>(abi::ADDRESS_PREFIXES, &old.address_prefixes, &new.address_prefixes);
        self.put_trie::<_, 8>(abi::PORT_PREFIXES, &old.port_prefixes, &new.port_prefixes);
        self.put_array(abi::SERVICES, &old.services, &new.services);
        self.put_hash(abi::SERVICE_KEYS, new.service_keys.clone());
        self.put_entries(&new.entries.borrow(), seed_of(&new.header));
        self.marks.put(new.marks.borrow().as_ref());
        self.put_array(abi::EMBRYONIC_SEEN, &[], &[new.embryonic_seen_ns.get()]);
        self.put_hash(abi::FRAGMENTS, new.fragments.borrow().clone());
        self.zero::<Budget>(abi::BUDGETS, 1);
        self.drops();
        self.held = new;
    }

    fn put_entries(&mut self, entries: &HashMap<(Store, Flow), FlowEntry>, seed: u64) {
        let of_store = |store| entries.iter().filter(move |((of, _), _)| *of == store);
        let (mut entries_v4, mut entries_v6) = (HashMap::new(), HashMap::new());
        for ((_, flow), entry) in of_store(Store::Flows) {
            let bytes: Vec<u8> = flow.key.iter().flat_map(|word| word.to_ne_bytes()).collect();
            if flow.family == 4 {
                let key = FlowKeyV4::from_bytes(&bytes[..16]).expect("sixteen bytes");
                entries_v4.insert(key, *entry);
            } else {
                entries_v6.insert(FlowKeyV6::from_bytes(&bytes).expect("forty bytes"), *entry);
            }
        }
        self.put_hash(abi::FLOWS_V4, entries_v4);
        self.put_hash(abi::FLOWS_V6, entries_v6);
        let embryonic = of_store(Store::Embryonic);
        self.embryonic.put(embryonic.map(|((_, flow), entry)| (tag(flow, seed), *entry)));
    }

    /// Runs one packet through a program.
    pub fn run(&mut self, entrance: Entrance, frame: &[u8]) -> Ran {
        self.runner().run(entrance, frame)
    }

    /// What runs packets beside others that do.
    #[must_use]
    pub fn runner(&self) -> Runner<'_> {
        Runner(&self.ebpf)
    }

    /// What the kernel's program explains of a packet; the frame must have room for it.
    pub fn explain(&mut self, frame: &[u8]) -> Explanation {
        let mut data_out = vec![0; frame.len() + 64];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut data_out),
            ..TestRunOptions::default()
        };
        let result = program::<Xdp>(&self.ebpf, abi::EXPLAIN_PROGRAM).test_run(options);
        let result = result.unwrap_or_else(|error| panic!("test-run of {frame:02x?}: {error:?}"));
        assert_eq!(result.return_value, XDP_PASS, "{frame:02x?}");
        let bytes = &data_out[EXPLANATION_OFFSET..][..size_of::<Explanation>()];
        Explanation::from_bytes(bytes).expect("as many bytes")
    }

    /// The entries that are in the maps, by where they stand and their flows' tags.
    #[must_use]
    pub fn entries(&self) -> HashMap<(Store, u64), FlowEntry> {
        let seed = seed_of(&self.held.header);
        let v4 = self.read_hash::<FlowKeyV4, FlowEntry>(abi::FLOWS_V4);
        let v4 = v4.into_iter().map(|(key, entry)| (tag(&flow_v4(&key), seed), entry));
        let v6 = self.read_hash::<FlowKeyV6, FlowEntry>(abi::FLOWS_V6);
        let v6 = v6.into_iter().map(|(key, entry)| (tag(&flow_v6(&key), seed), entry));
        let in_store = |store| move |(tag, entry)| ((store, tag), entry);
        let lasting = v4.chain(v6).map(in_store(Store::Flows));
        let embryonic = self.embryonic.all().into_iter().map(in_store(Store::Embryonic));
        lasting.chain(embryonic).collect()
    }

    /// Where the first fragments of datagrams went.
    #[must_use]
    pub fn fragments(&self) -> HashMap<FragmentKey, FragmentEntry> {
        self.read_hash(abi::FRAGMENTS)
    }

    /// The marks of flows that may have entries.
    #[must_use]
    pub fn marks(&self) -> HashSet<u32> {
        self.marks.all()
    }

    /// When an embryonic entry was last put or stamped.
    #[must_use]
    pub fn embryonic_seen_ns(&self) -> u64 {
        self.read_element(abi::EMBRYONIC_SEEN, 0)
    }

    /// The records of dropped packets that have come since this was last asked.
    pub fn drops(&mut self) -> Vec<DropRecord> {
        let mut all = Vec::new();
        while let Some(record) = self.drops.next() {
            all.push(DropRecord::from_bytes(&record).expect("a record of the ABI's size"));
        }
        all
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
}

/// The seed of the tags of entries, where the header is this one.
#[must_use]
pub fn seed_of(header: &Header) -> u64 {
    let (words, _) = header.boot_id.as_chunks();
    seed([u64::from_ne_bytes(words[0]), u64::from_ne_bytes(words[1])])
}

fn heartbeats(tables: &ModelTables) -> Vec<Heartbeat> {
    let beat = |beat_ns: &u64| Heartbeat { beat_ns: *beat_ns, ..Heartbeat::default() };
    tables.heartbeats_ns.iter().map(beat).collect()
}

fn flow_v4(key: &FlowKeyV4) -> Flow {
    let word = |bytes: [u8; 4]| u32::from_ne_bytes(bytes);
    let ports = ports(key.source_port, key.destination_port);
    Flow::v4(word(key.source), word(key.destination), ports, key.protocol)
}

fn flow_v6(key: &FlowKeyV6) -> Flow {
    let words = |bytes: [u8; 16]| {
        let word =
            |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        [word(0), word(4), word(8), word(12)]
    };
    let ports = ports(key.source_port, key.destination_port);
    Flow::v6(words(key.source), words(key.destination), ports, key.protocol)
}

fn ports([a, b]: [u8; 2], [c, d]: [u8; 2]) -> u32 {
    u32::from_ne_bytes([a, b, c, d])
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

fn program<'a, P>(ebpf: &'a Ebpf, name: &str) -> &'a P
where
    &'a P: TryFrom<&'a Program, Error: Debug>,
{
    let program = ebpf.program(name).unwrap_or_else(|| panic!("no program {name} in the object"));
    program.try_into().expect("a program of this type")
}

fn program_mut<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut P
where
    &'a mut P: TryFrom<&'a mut Program, Error: Debug>,
{
    let program = ebpf.program_mut(name);
    let program = program.unwrap_or_else(|| panic!("no program {name} in the object"));
    program.try_into().expect("a program of this type")
}
