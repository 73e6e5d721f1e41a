//! Attaching to interfaces, new or in the place of what an agent before this one left.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use super::aya::LinkError;
use super::by_hand;
use super::datapath::{Datapath, TcHook};
use super::detach::{self, LinkKind};
use super::error::KernelError;
use super::syscall;
use super::turn::Turned;
use crate::fleet::{Attachment, Program, XdpMode};
use crate::netlink::{self, Interface, XdpModeInForce};

/// One program on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The interface.
    pub interface: String,
    /// How it runs, as the kernel tells.
    pub mode: AttachedMode,
    /// Whether a link that an agent before this one left was updated in place.
    pub taken_over: bool,
    /// What the operator should know: why `auto` came to generic.
    pub note: Option<String>,
}

/// How an attached program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttachedMode {
    /// XDP in the driver, by a link.
    XdpNative,
    /// XDP in the stack, by a link.
    XdpGeneric,
    /// TC ingress, by a TCX link.
    Tcx,
    /// TC ingress, by a filter on clsact: the kernel has no TCX, so there is no link. The clsact
    /// qdisc itself stays after a detach: others may have put filters there.
    Clsact,
}

impl std::fmt::Display for AttachedMode {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::XdpNative => "xdp native",
            Self::XdpGeneric => "xdp generic",
            Self::Tcx => "tc (tcx link)",
            Self::Clsact => "tc (clsact filter, no link)",
        })
    }
}

impl Datapath {
    /// Whether [`Datapath::attach`] can be expected to work: every interface exists and runs no XDP
    /// program but ours.
    ///
    /// # Errors
    ///
    /// The first interface that will not do.
    pub fn check(&self, attachments: &[Attachment]) -> Result<(), KernelError> {
        self.wanted(&netlink::interfaces()?, attachments).map(drop)
    }

    /// Attaches to every interface of `attachments`, and to no other: a link that an agent before
    /// this one left is updated in place, or detached when it is not wanted any more.
    ///
    /// # Errors
    ///
    /// An interface that does not exist or runs somebody else's XDP program (found before
    /// anything is attached), or the kernel refuses, or the program that was put in another's place
    /// does nothing. Then everything is as it was: new links are detached, and what was there before
    /// runs again.
    pub fn attach(&mut self, attachments: &[Attachment]) -> Result<Vec<Attached>, KernelError> {
        let interfaces = netlink::interfaces()?;
        let wanted = self.wanted(&interfaces, attachments)?;
        let mut turned = Turned::new(self.pins.programs());
        match self.turn(&wanted, &mut turned) {
            Ok(done) => {
                self.attached = true;
                self.detach_others(&done);
                self.pin_programs();
                if self.old_maps {
                    self.pins.drop_old_maps()?;
                }
                Ok(done)
            }
            Err(error) => {
                // What could not be put back runs on with the maps that belong to it.
                self.attached |= !turned.put_back();
                Err(error)
            }
        }
    }
}

/// Attaching to one interface.
impl Datapath {
    /// Turns every interface to our program, one after the other, and watches it.
    fn turn(
        &mut self,
        wanted: &[(&Interface, Program)],
        turned: &mut Turned,
    ) -> Result<Vec<Attached>, KernelError> {
        let counted_before = self.watch.has_moved()?;
        for moving in &mut self.moving {
            moving.copy()?;
        }
        let mut done = Vec::new();
        for &(interface, program) in wanted {
            done.push(match program {
                Program::Xdp(mode) => self.attach_xdp(interface, mode, turned)?,
                Program::Tc => self.attach_tc(interface, turned)?,
            });
        }
        for moving in &self.moving {
            moving.follow()?;
        }
        if counted_before && 0 < turned.taken_over_count() {
            let interfaces: Vec<u32> = wanted.iter().map(|(it, _)| it.index).collect();
            self.watch.see(&interfaces)?;
        }
        Ok(done)
    }

    /// The interfaces of `attachments` among `interfaces`, none of them somebody else's.
    fn wanted<'a>(
        &self,
        interfaces: &'a [Interface],
        attachments: &[Attachment],
    ) -> Result<Vec<(&'a Interface, Program)>, KernelError> {
        attachments
            .iter()
            .map(|attachment| {
                let interface = find(interfaces, &attachment.interface)?;
                if let Program::Xdp(_) = attachment.program {
                    self.refuse_foreign(interface)?;
                }
                Ok((interface, attachment.program))
            })
            .collect()
    }

    /// Pins the programs that the links run now, for an agent after this one to turn back to.
    fn pin_programs(&mut self) {
        let folder = self.pins.programs();
        let pinned =
            self.pins.drop_programs().map_err(|error| error.to_string()).and_then(|()| {
                self.loaded.pin_programs(&folder).map_err(|error| error.to_string())
            });
        if let Err(reason) = pinned {
            tracing::warn!("a later agent cannot turn back to these programs: {reason}");
        }
    }

    fn attach_xdp(
        &mut self,
        interface: &Interface,
        mode: XdpMode,
        turned: &mut Turned,
    ) -> Result<Attached, KernelError> {
        let pin = self.pin(interface, LinkKind::Xdp);
        let in_force = interface.xdp.map(|xdp| xdp.mode == XdpModeInForce::Native);
        if let (Some(_), Some(native)) = (linked_program(&pin, interface), in_force)
            && (mode == XdpMode::Auto || native == (mode == XdpMode::Native))
        {
            turned
                .link(&pin, || self.loaded.relink_xdp(&pin))
                .map_err(|error| refused(interface, "xdp", &error))?;
            return self.check_xdp(interface, native, true, None);
        }
        // A link of the wrong mode, or one whose interface is gone, cannot be updated.
        let was_native = in_force.filter(|_| linked_program(&pin, interface).is_some());
        turned.replace_xdp(&pin, interface.index, was_native)?;
        if mode == XdpMode::Generic {
            self.link_xdp(interface, false, turned)?;
            return self.check_xdp(interface, false, false, None);
        }
        match self.link_xdp(interface, true, turned) {
            Ok(()) => self.check_xdp(interface, true, false, None),
            Err(error) if mode == XdpMode::Auto => {
                self.link_xdp(interface, false, turned)?;
                let note = format!("generic, because native failed: {error}");
                self.check_xdp(interface, false, false, Some(note))
            }
            Err(KernelError::Attach { interface, mode, reason }) => Err(KernelError::Attach {
                interface,
                mode,
                reason: format!(
                    "{reason}; if its driver lacks XDP or its MTU is too large for it, set mode \
                     \"auto\" or \"generic\""
                ),
            }),
            Err(error) => Err(error),
        }
    }

    fn link_xdp(
        &mut self,
        interface: &Interface,
        native: bool,
        turned: &mut Turned,
    ) -> Result<(), KernelError> {
        let name = mode_name(native);
        let pin = self.pin(interface, LinkKind::Xdp);
        self.loaded.link_xdp(interface.index, native, &pin).map_err(|error| {
            if matches!(error, LinkError::WithoutLink)
                && let Err(error) = netlink::Netlink::open()
                    .and_then(|mut netlink| netlink.remove_xdp(interface.index, !native))
            {
                let by_hand = by_hand::remove_xdp(&interface.name, !native);
                tracing::warn!(
                    interface = interface.name,
                    "a program without a link stays: {error}; by hand: `{by_hand}`"
                );
            }
            refused(interface, name, &error)
        })?;
        turned.attached(&pin);
        Ok(())
    }

    /// Holds what the kernel says of the interface against what was asked for.
    fn check_xdp(
        &mut self,
        interface: &Interface,
        native: bool,
        taken_over: bool,
        note: Option<String>,
    ) -> Result<Attached, KernelError> {
        let name = mode_name(native);
        let program_id = self.loaded.xdp_program_id();
        let program_id = program_id.map_err(|error| refused(interface, name, &error))?;
        let wanted = if native { XdpModeInForce::Native } else { XdpModeInForce::Generic };
        let found = netlink::xdp_attached(interface.index)?;
        if !found.is_some_and(|xdp| xdp.mode == wanted && xdp.program_id == program_id) {
            let reason = format!("the kernel then says that it runs {found:?}");
            return Err(KernelError::Attach {
                interface: interface.name.clone(),
                mode: name,
                reason,
            });
        }
        let mode = if native { AttachedMode::XdpNative } else { AttachedMode::XdpGeneric };
        Ok(Attached { interface: interface.name.clone(), mode, taken_over, note })
    }

    fn attach_tc(
        &mut self,
        interface: &Interface,
        turned: &mut Turned,
    ) -> Result<Attached, KernelError> {
        let name = interface.name.clone();
        if self.tc_hook == TcHook::Clsact || !kernel_has_tcx() {
            let pin = self.pin(interface, LinkKind::Clsact);
            let before = self
                .loaded
                .filter_tc(&name, &pin)
                .map_err(|error| refused(interface, "tc clsact", &error))?;
            let taken_over = before.is_some();
            match before {
                Some(before) => turned.filter(before),
                None => turned.attached(&pin),
            }
            let mode = AttachedMode::Clsact;
            return Ok(Attached { interface: name, mode, taken_over, note: None });
        }
        let pin = self.pin(interface, LinkKind::Tcx);
        let taken_over = linked_program(&pin, interface).is_some();
        if taken_over {
            turned.link(&pin, || self.loaded.relink_tcx(&pin))
        } else {
            detach::remove_link(&pin)?;
            self.loaded.link_tcx(&name, &pin).inspect(|()| turned.attached(&pin))
        }
        .map_err(|error| refused(interface, "tcx", &error))?;
        let program_id = self.loaded.tc_program_id();
        let program_id = program_id.map_err(|error| refused(interface, "tcx", &error))?;
        if linked_program(&pin, interface) != Some(program_id) {
            let reason = "the link does not hold our program".to_owned();
            return Err(KernelError::Attach { interface: name, mode: "tcx", reason });
        }
        Ok(Attached { interface: name, mode: AttachedMode::Tcx, taken_over, note: None })
    }

    /// Refuses an interface that runs an XDP program which is not behind our own link.
    fn refuse_foreign(&self, interface: &Interface) -> Result<(), KernelError> {
        let Some(xdp) = interface.xdp else {
            return Ok(());
        };
        let pin = self.pin(interface, LinkKind::Xdp);
        if linked_program(&pin, interface) == Some(xdp.program_id) {
            return Ok(());
        }
        Err(KernelError::ForeignProgram {
            interface: interface.name.clone(),
            program_id: xdp.program_id,
            program_name: syscall::program_name(xdp.program_id).unwrap_or_default(),
            generic: xdp.mode == XdpModeInForce::Generic,
        })
    }

    /// Detaches links of an earlier agent that are not wanted any more.
    fn detach_others(&self, done: &[Attached]) {
        let wanted: Vec<_> = done
            .iter()
            .map(|attached| LinkKind::of(attached.mode).pin_name(&attached.interface))
            .collect();
        for (name, path) in self.pins.links() {
            if wanted.contains(&name) {
                continue;
            }
            match detach::remove_link(&path) {
                Ok(_) => tracing::info!(link = name, "detached: not configured any more"),
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }

    fn pin(&self, interface: &Interface, kind: LinkKind) -> PathBuf {
        self.pins.link(&kind.pin_name(&interface.name))
    }
}

/// The program behind the link pinned at `pin`, if the link is attached to this interface.
fn linked_program(pin: &Path, interface: &Interface) -> Option<u32> {
    let link = syscall::pinned(pin).ok()?;
    let info = syscall::link_info(link.as_fd()).ok()?;
    (info.interface_index == interface.index).then_some(info.program_id)
}

fn find<'a>(interfaces: &'a [Interface], name: &str) -> Result<&'a Interface, KernelError> {
    interfaces.iter().find(|interface| interface.name == name).ok_or_else(|| {
        let names: Vec<_> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
        KernelError::NoInterface { name: name.to_owned(), hint: interface_hint(name, &names) }
    })
}

/// What to say to whoever named an interface that does not exist.
fn interface_hint(name: &str, names: &[&str]) -> String {
    let nearest = names
        .iter()
        .map(|&candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|&(likeness, _)| 0.75 <= likeness)
        .max_by(|(first, _), (second, _)| first.total_cmp(second));
    let list = names.join(", ");
    match nearest {
        Some((_, nearest)) => format!("did you mean {nearest:?}? There are: {list}"),
        None => format!("there are: {list}"),
    }
}

/// TCX links came with 6.6 (commit e420bed02507).
fn kernel_has_tcx() -> bool {
    crate::host::kernel_version().is_some_and(|version| (6, 6) <= version)
}

const fn mode_name(native: bool) -> &'static str {
    if native { "xdp native" } else { "xdp generic" }
}

fn refused(interface: &Interface, mode: &'static str, error: &LinkError) -> KernelError {
    KernelError::Attach { interface: interface.name.clone(), mode, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_interface_gets_its_nearest_name() {
        assert_eq!(
            interface_hint("eth00", &["lo", "eth0", "wlan0"]),
            "did you mean \"eth0\"? There are: lo, eth0, wlan0"
        );
        assert_eq!(interface_hint("bond7", &["lo"]), "there are: lo");
    }
}
