//! Load, pin, link: with its folder the only file of the agent that names aya; its errors leave as
//! one line.
//!
//! Attaching is by bpf_link, which belongs to whoever holds or pins it. aya falls back from an XDP
//! link to a netlink attach without a word (0.14, `Xdp::attach_to_if_index`); that is noticed
//! here. TC has links from 6.6 on (TCX); below it, a filter on clsact.

/// Samples of dropped packets.
mod drops;
/// The program that explains.
mod explainer;
/// Programs apart from everybody's, run packet by packet.
mod trial;

use std::error::Error;
use std::path::{Path, PathBuf};

use ::aya::maps::lpm_trie::{Key, LpmTrie};
use ::aya::maps::{Array, HashMap, MapData};
use ::aya::programs::links::{FdLink, PinnedLink};
use ::aya::programs::tc::{
    NlOptions, SchedClassifierLink, SchedClassifierLinkId, TcAttachOptions, TcHandle,
};
use ::aya::programs::xdp::XdpLink;
use ::aya::programs::{
    LinkOrder, ProgramError, SchedClassifier, TcAttachType, Xdp, XdpMode as AyaXdpMode, tc,
};
use ::aya::{Ebpf, EbpfLoader};
use sickbay_shared::abi::{
    self, AddressPrefixKey, Pool, PortPrefixKey, Service, ServiceKey, TC_PROGRAM, XDP_PROGRAM,
};
use sickbay_shared::pod::Pod;

pub use self::drops::DropRing;
pub use self::explainer::Explainer;
pub(super) use self::trial::{Entrance, Ran};

use super::by_hand::CLSACT_PRIORITY;
use super::error::KernelError;
use super::pins::Pins;
use super::sizes::Sizes;

/// Handle of our filter where TC has no links, beside its priority.
const CLSACT_HANDLE: TcHandle = TcHandle::new(0, 1);

/// Why a program could not be attached.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    /// aya fell back to a netlink attach: the program is attached, without a link.
    #[error("the kernel attached it without a link")]
    WithoutLink,
    /// The kernel refused.
    #[error("{0}")]
    Refused(String),
}

/// Programs and maps in the kernel.
#[derive(Debug)]
pub(super) struct Loaded {
    ebpf: Ebpf,
}

impl Loaded {
    /// Makes the maps with room for `sizes`, pins each of them, and loads both programs. A map
    /// that is pinned in its place already is used as it is. Without `pins` the maps are these
    /// programs' alone, and go with them.
    pub(super) fn load(
        object: &[u8],
        sizes: &Sizes,
        pins: Option<&Pins>,
    ) -> Result<Self, KernelError> {
        let mut loader = EbpfLoader::new();
        for (name, entries) in sizes.maps() {
            loader.map_max_entries(name, entries);
            if let Some(pins) = pins {
                loader.map_pin_path(name, pins.map(name));
            }
        }
        let ebpf = loader.load(object).map_err(|error| not_loaded(&error))?;
        if let Some(name) = abi::MAPS.into_iter().find(|name| ebpf.map(name).is_none()) {
            return Err(KernelError::NotInObject { name });
        }
        let mut loaded = Self { ebpf };
        if loaded.ebpf.program(XDP_PROGRAM).is_none() {
            return Err(KernelError::NotInObject { name: XDP_PROGRAM });
        }
        if loaded.ebpf.program(TC_PROGRAM).is_none() {
            return Err(KernelError::NotInObject { name: TC_PROGRAM });
        }
        loaded.xdp().and_then(Xdp::load).map_err(|error| program_not_loaded(&error))?;
        loaded.tc().and_then(SchedClassifier::load).map_err(|error| program_not_loaded(&error))?;
        Ok(loaded)
    }

    pub(super) fn set_service(&mut self, service: &Service) -> Result<(), KernelError> {
        let map = self.ebpf.map_mut(abi::SERVICES).expect("load checked that it is there");
        Array::<&mut MapData, [u8; 128]>::try_from(map)
            .and_then(|mut map| map.set(service.index, bytes(service), 0))
            .map_err(|error| map_failed(abi::SERVICES, &error))
    }

    pub(super) fn insert_service_key(
        &mut self,
        key: &ServiceKey,
        index: u32,
    ) -> Result<(), KernelError> {
        let map = self.ebpf.map_mut(abi::SERVICE_KEYS).expect("load checked that it is there");
        HashMap::<&mut MapData, [u8; 20], u32>::try_from(map)
            .and_then(|mut map| map.insert(bytes(key), index, 0))
            .map_err(|error| map_failed(abi::SERVICE_KEYS, &error))
    }

    pub(super) fn insert_address_prefix(
        &mut self,
        key: &AddressPrefixKey,
        number: u32,
    ) -> Result<(), KernelError> {
        self.insert_prefix::<24, 20>(abi::ADDRESS_PREFIXES, key, number)
    }

    pub(super) fn insert_port_prefix(
        &mut self,
        key: &PortPrefixKey,
        index: u32,
    ) -> Result<(), KernelError> {
        self.insert_prefix::<12, 8>(abi::PORT_PREFIXES, key, index)
    }

    /// Puts `value` into an LPM trie; a key's first word is its length in bits.
    fn insert_prefix<const KEY: usize, const MATCHED: usize>(
        &mut self,
        name: &'static str,
        key: &impl Pod,
        value: u32,
    ) -> Result<(), KernelError> {
        let key = bytes::<_, KEY>(key);
        let (bits, matched) = key.split_first_chunk().expect("a key begins with its length");
        let matched: [u8; MATCHED] = matched.try_into().expect("the rest of the key");
        let key = Key::new(u32::from_ne_bytes(*bits), matched);
        let map = self.ebpf.map_mut(name).expect("load checked that it is there");
        LpmTrie::<&mut MapData, [u8; MATCHED], u32>::try_from(map)
            .and_then(|mut map| map.insert(&key, value, 0))
            .map_err(|error| map_failed(name, &error))
    }

    /// The samples of dropped packets; once.
    pub(super) fn take_drops(&mut self) -> Result<DropRing, KernelError> {
        let map = self.ebpf.take_map(abi::DROPS);
        let map = map.ok_or(KernelError::NotInObject { name: abi::DROPS })?;
        DropRing::new(map).map_err(|error| map_failed(abi::DROPS, &error))
    }

    pub(super) fn insert_pool(&mut self, index: u32, pool: &Pool) -> Result<(), KernelError> {
        let map = self.ebpf.map_mut(abi::POOLS).expect("load checked that it is there");
        Array::<&mut MapData, [u8; 32]>::try_from(map)
            .and_then(|mut map| map.set(index, bytes(pool), 0))
            .map_err(|error| map_failed(abi::POOLS, &error))
    }

    /// Pins both programs in a folder, by their names.
    pub(super) fn pin_programs(&mut self, folder: &Path) -> Result<(), LinkError> {
        self.xdp()?.pin(folder.join(XDP_PROGRAM)).map_err(|error| refused(&error))?;
        self.tc()?.pin(folder.join(TC_PROGRAM)).map_err(|error| refused(&error))
    }

    /// The XDP program's id.
    pub(super) fn xdp_program_id(&mut self) -> Result<u32, LinkError> {
        Ok(self.xdp()?.info()?.id())
    }

    /// The TC program's id.
    pub(super) fn tc_program_id(&mut self) -> Result<u32, LinkError> {
        Ok(self.tc()?.info()?.id())
    }

    /// Attaches the XDP program by a new link, pinned at `pin`.
    pub(super) fn link_xdp(
        &mut self,
        interface_index: u32,
        native: bool,
        pin: &Path,
    ) -> Result<(), LinkError> {
        let mode = if native { AyaXdpMode::Driver } else { AyaXdpMode::Skb };
        let program = self.xdp()?;
        let id = program.attach_to_if_index(interface_index, mode)?;
        let link = program.take_link(id)?;
        let link = FdLink::try_from(link).map_err(|_| LinkError::WithoutLink)?;
        pin_link(link, pin)
    }

    /// Puts the XDP program in the place of the one behind the link pinned at `pin`.
    pub(super) fn relink_xdp(&mut self, pin: &Path) -> Result<(), LinkError> {
        let link = XdpLink::try_from(open_link(pin)?).map_err(|error| refused(&error))?;
        let program = self.xdp()?;
        let id = program.attach_to_link(link)?;
        // The pin holds the link; our descriptor of it is not needed.
        program.take_link(id).map(drop).map_err(LinkError::from)
    }

    /// Attaches the TC program to ingress by a new TCX link, before other programs, pinned at
    /// `pin`.
    pub(super) fn link_tcx(&mut self, interface: &str, pin: &Path) -> Result<(), LinkError> {
        let program = self.tc()?;
        let options = TcAttachOptions::TcxOrder(LinkOrder::first());
        let id = program.attach_with_options(interface, TcAttachType::Ingress, options)?;
        let link = program.take_link(id)?;
        let link = FdLink::try_from(link).map_err(|_| LinkError::WithoutLink)?;
        pin_link(link, pin)
    }

    /// Puts the TC program in the place of the one behind the TCX link pinned at `pin`.
    pub(super) fn relink_tcx(&mut self, pin: &Path) -> Result<(), LinkError> {
        let link =
            SchedClassifierLink::try_from(open_link(pin)?).map_err(|error| refused(&error))?;
        let program = self.tc()?;
        let id = program.attach_to_link(link)?;
        program.take_link(id).map(drop).map_err(LinkError::from)
    }

    /// Attaches the TC program as a filter of clsact, in the place of the one an earlier agent
    /// left, which is handed back; the program is pinned at `pin`, so that [`remove_filter`]'s
    /// callers know of it.
    pub(super) fn filter_tc(
        &mut self,
        interface: &str,
        pin: &Path,
    ) -> Result<Option<FilterBefore>, LinkError> {
        match tc::qdisc_add_clsact(interface) {
            Ok(()) | Err(tc::TcError::AlreadyAttached) => {}
            // The kernel says EEXIST, which aya passes on as a netlink error; a clsact that cannot
            // be had otherwise shows in the next step.
            Err(error) => tracing::debug!(interface, "clsact: {}", one_line(&error)),
        }
        let before = if pin.exists() { Some(FilterBefore::new(interface, pin)?) } else { None };
        let program = self.tc()?;
        if before.is_some() {
            replace_filter(program, interface)?;
        } else {
            let options = NlOptions {
                priority: CLSACT_PRIORITY,
                handle: CLSACT_HANDLE,
                ..NlOptions::default()
            };
            let options = TcAttachOptions::Netlink(options);
            let id = program.attach_with_options(interface, TcAttachType::Ingress, options)?;
            leave_attached(program, id)?;
        }
        let pinned = pin_in_place(program, pin);
        match (pinned, before) {
            (Ok(()), before) => Ok(before),
            (Err(error), Some(before)) => before.put_back().and(Err(error)),
            (Err(error), None) => remove_filter(interface).and(Err(error)),
        }
    }

    fn xdp(&mut self) -> Result<&mut Xdp, ProgramError> {
        let program = self.ebpf.program_mut(XDP_PROGRAM);
        program.expect("load checked that it is there").try_into()
    }

    fn tc(&mut self) -> Result<&mut SchedClassifier, ProgramError> {
        let program = self.ebpf.program_mut(TC_PROGRAM);
        program.expect("load checked that it is there").try_into()
    }
}

/// What a filter of clsact ran before our program: it can be put back.
#[derive(Debug)]
pub(super) struct FilterBefore {
    interface: String,
    pin: PathBuf,
    program: SchedClassifier,
}

impl FilterBefore {
    fn new(interface: &str, pin: &Path) -> Result<Self, LinkError> {
        let program = SchedClassifier::from_pin(pin)?;
        Ok(Self { interface: interface.to_owned(), pin: pin.to_owned(), program })
    }

    /// Has the filter run it again.
    pub(super) fn put_back(mut self) -> Result<(), LinkError> {
        replace_filter(&mut self.program, &self.interface)?;
        pin_in_place(&mut self.program, &self.pin)
    }
}

/// Has our filter on an interface run this program, in one step.
fn replace_filter(program: &mut SchedClassifier, interface: &str) -> Result<(), LinkError> {
    let id = program.attach_to_link(filter(interface)?)?;
    leave_attached(program, id)
}

/// Dropping the link would take the filter off, which is to outlive the agent as a pinned link
/// does. It owns nothing.
fn leave_attached(
    program: &mut SchedClassifier,
    id: SchedClassifierLinkId,
) -> Result<(), LinkError> {
    std::mem::forget(program.take_link(id)?);
    Ok(())
}

/// Pins the program, in the place of one that is pinned there.
fn pin_in_place(program: &mut SchedClassifier, pin: &Path) -> Result<(), LinkError> {
    remove_if_there(pin).map_err(|error| refused(&error))?;
    program.pin(pin).map_err(|error| refused(&error))
}

/// Takes our filter off an interface's clsact.
pub(super) fn remove_filter(interface: &str) -> Result<(), LinkError> {
    use ::aya::programs::Link as _;
    filter(interface)?.detach().map_err(LinkError::from)
}

fn filter(interface: &str) -> Result<SchedClassifierLink, LinkError> {
    let (priority, handle) = (CLSACT_PRIORITY, CLSACT_HANDLE);
    SchedClassifierLink::attached(interface, TcAttachType::Ingress, priority, handle, None)
        .map_err(|error| refused(&error))
}

fn open_link(pin: &Path) -> Result<FdLink, LinkError> {
    PinnedLink::from_pin(pin).map(FdLink::from).map_err(|error| refused(&error))
}

/// Pins a link; when that fails, dropping it detaches it.
fn pin_link(link: FdLink, pin: &Path) -> Result<(), LinkError> {
    link.pin(pin).map(drop).map_err(|error| refused(&error))
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl From<ProgramError> for LinkError {
    fn from(error: ProgramError) -> Self {
        refused(&error)
    }
}

fn refused(error: &dyn Error) -> LinkError {
    LinkError::Refused(one_line(error))
}

fn not_loaded(error: &dyn Error) -> KernelError {
    KernelError::Load { reason: one_line(error) }
}

/// The verifier's log is thousands of lines; what it stumbled over is near its end.
fn program_not_loaded(error: &ProgramError) -> KernelError {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return not_loaded(error);
    };
    let log = verifier_log.to_string();
    let last = log
        .lines()
        .map(str::trim)
        .rfind(|line| {
            let noise = ["processed ", "verification time", "stack depth"];
            !line.is_empty() && !noise.iter().any(|start| line.starts_with(start))
        })
        .unwrap_or("no log");
    KernelError::Load { reason: format!("{io_error}; the verifier says: {last}") }
}

fn map_not_there(map: &'static str) -> KernelError {
    let reason = "it is not pinned: no agent of this instance has started steering".to_owned();
    KernelError::Map { map, reason }
}

fn map_failed(map: &'static str, error: &dyn Error) -> KernelError {
    KernelError::Map { map, reason: one_line(error) }
}

/// An error with its causes, each once, in one line.
fn one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn bytes<T: Pod, const SIZE: usize>(value: &T) -> [u8; SIZE] {
    const { assert!(size_of::<T>() == SIZE) };
    value.as_bytes().try_into().expect("the sizes are equal")
}
