//! What an attach has changed so far, step by step, so that it can be put back.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use sickbay_shared::abi::{TC_PROGRAM, XDP_PROGRAM};

use super::aya::{FilterBefore, LinkError};
use super::detach;
use super::error::KernelError;
use super::syscall;

/// The steps of one attach, in their order.
#[derive(Debug)]
pub(super) struct Turned {
    steps: Vec<Step>,
    /// Where the programs before are pinned.
    programs: PathBuf,
}

#[derive(Debug)]
enum Step {
    /// Attached where nothing was.
    New { pin: PathBuf },
    /// A link runs our program in the place of this one; `None`: one that cannot be had.
    Link { pin: PathBuf, before: Option<OwnedFd> },
    /// A filter of clsact does.
    Filter(Box<FilterBefore>),
    /// A link was taken off, which ran this program in the other mode.
    Replaced { pin: PathBuf, interface_index: u32, native: bool, before: OwnedFd },
}

impl Turned {
    /// No step yet; the programs that run now are pinned in this folder.
    pub(super) const fn new(programs: PathBuf) -> Self {
        Self { steps: Vec::new(), programs }
    }

    /// What is pinned at `pin` is attached anew.
    pub(super) fn attached(&mut self, pin: &Path) {
        self.steps.push(Step::New { pin: pin.to_owned() });
    }

    /// The filter runs another program than this.
    pub(super) fn filter(&mut self, before: FilterBefore) {
        self.steps.push(Step::Filter(Box::new(before)));
    }

    /// Has the link pinned at `pin` run what `relink` puts in its program's place.
    pub(super) fn link(
        &mut self,
        pin: &Path,
        relink: impl FnOnce() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let before = self.program_of(pin);
        relink()?;
        self.steps.push(Step::Link { pin: pin.to_owned(), before });
        Ok(())
    }

    /// Takes the XDP link pinned at `pin` off, if there is one: another one follows it. `native`: how
    /// it runs; `None`: its interface is gone.
    pub(super) fn replace_xdp(
        &mut self,
        pin: &Path,
        interface_index: u32,
        native: Option<bool>,
    ) -> Result<(), KernelError> {
        let before = self.program_of(pin);
        detach::remove_link(pin)?;
        if let (Some(native), Some(before)) = (native, before) {
            let pin = pin.to_owned();
            self.steps.push(Step::Replaced { pin, interface_index, native, before });
        }
        Ok(())
    }

    /// How many run in the place of a program that was there.
    pub(super) fn taken_over_count(&self) -> usize {
        self.steps.iter().filter(|step| !matches!(step, Step::New { .. })).count()
    }

    /// Puts everything back as it was, the last step first; what cannot be is told. Whether all could.
    pub(super) fn put_back(self) -> bool {
        let mut all = true;
        for step in self.steps.into_iter().rev() {
            if let Err(reason) = step.put_back() {
                tracing::error!("cannot put back what steered before: {reason}");
                all = false;
            }
        }
        all
    }

    /// The program behind a pinned link, held: by its own pin, or by its id where that is allowed.
    fn program_of(&self, pin: &Path) -> Option<OwnedFd> {
        let link = syscall::pinned(pin).ok()?;
        let id = syscall::link_info(link.as_fd()).ok()?.program_id;
        let mut pinned = [XDP_PROGRAM, TC_PROGRAM]
            .into_iter()
            .filter_map(|name| syscall::pinned(&self.programs.join(name)).ok());
        let runs = |program: &OwnedFd| syscall::program_id(program.as_fd()).ok() == Some(id);
        pinned.find(runs).or_else(|| syscall::program(id).ok())
    }
}

impl Step {
    fn put_back(self) -> Result<(), String> {
        let result = match self {
            Self::New { pin } => return told(detach::remove_link(&pin)),
            Self::Filter(before) => return told(before.put_back()),
            Self::Link { pin, before } => {
                let before = before.ok_or("its program is not pinned")?;
                syscall::pinned(&pin)
                    .and_then(|link| syscall::update_link(link.as_fd(), before.as_fd()))
            }
            Self::Replaced { pin, interface_index, native, before } => {
                syscall::link_xdp(before.as_fd(), interface_index, native)
                    .and_then(|link| syscall::pin(link.as_fd(), &pin))
            }
        };
        told(result)
    }
}

fn told<T>(result: Result<T, impl std::fmt::Display>) -> Result<(), String> {
    result.map(drop).map_err(|error| error.to_string())
}
