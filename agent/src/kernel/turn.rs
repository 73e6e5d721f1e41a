//! What an attach has changed so far, step by step, so that it can be put back.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use super::aya::{FilterBefore, LinkError};
use super::detach;
use super::error::KernelError;
use super::syscall;

/// The steps of one attach, in their order.
#[derive(Debug, Default)]
pub(super) struct Turned(Vec<Step>);

#[derive(Debug)]
enum Step {
    /// Attached where nothing was.
    New { pin: PathBuf },
    /// A link runs our program in the place of this one.
    Link { pin: PathBuf, before: OwnedFd },
    /// A filter of clsact does.
    Filter(FilterBefore),
    /// A link was taken off, which ran this program in the other mode.
    Replaced { pin: PathBuf, interface_index: u32, native: bool, before: OwnedFd },
}

impl Turned {
    /// What is pinned at `pin` is attached anew.
    pub(super) fn attached(&mut self, pin: &Path) {
        self.0.push(Step::New { pin: pin.to_owned() });
    }

    /// The filter runs another program than this.
    pub(super) fn filter(&mut self, before: FilterBefore) {
        self.0.push(Step::Filter(before));
    }

    /// Has the link pinned at `pin` run what `relink` puts in its program's place.
    pub(super) fn link(
        &mut self,
        pin: &Path,
        relink: impl FnOnce() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let before = program_of(pin).map_err(|error| LinkError::Refused(error.to_string()))?;
        relink()?;
        self.0.push(Step::Link { pin: pin.to_owned(), before });
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
        let before = program_of(pin).ok();
        detach::remove_link(pin)?;
        if let (Some(native), Some(before)) = (native, before) {
            let pin = pin.to_owned();
            self.0.push(Step::Replaced { pin, interface_index, native, before });
        }
        Ok(())
    }

    /// How many run in the place of a program that was there.
    pub(super) fn taken_over_count(&self) -> usize {
        self.0.iter().filter(|step| !matches!(step, Step::New { .. })).count()
    }

    /// Puts everything back as it was, the last step first; what cannot be is told.
    pub(super) fn put_back(self) {
        for step in self.0.into_iter().rev() {
            if let Err(reason) = step.put_back() {
                tracing::error!("cannot put back what steered before: {reason}");
            }
        }
    }
}

impl Step {
    fn put_back(self) -> Result<(), String> {
        let result = match self {
            Self::New { pin } => return told(detach::remove_link(&pin)),
            Self::Filter(before) => return told(before.put_back()),
            Self::Link { pin, before } => syscall::pinned(&pin)
                .and_then(|link| syscall::update_link(link.as_fd(), before.as_fd())),
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

/// The program behind a pinned link, held.
fn program_of(pin: &Path) -> std::io::Result<OwnedFd> {
    let link = syscall::pinned(pin)?;
    syscall::program(syscall::link_info(link.as_fd())?.program_id)
}
