//! The program that explains, over the pinned maps: loaded when it is first asked, never attached.

use std::path::Path;

use ::aya::programs::{TestRun as _, TestRunOptions, Xdp};
use ::aya::{Ebpf, EbpfLoader};
use sickbay_shared::abi::{self, EXPLAIN_PROGRAM, EXPLANATION_OFFSET, Explanation};
use sickbay_shared::pod::Pod as _;

use super::{map_not_there, not_loaded, program_not_loaded};
use crate::kernel::error::KernelError;
use crate::kernel::pins::MAPS_FOLDER;

/// `XDP_PASS` of `enum xdp_action`.
const XDP_PASS: u32 = 2;

/// Explains what the kernel program would do with a packet.
pub struct Explainer {
    ebpf: Ebpf,
}

impl std::fmt::Debug for Explainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Explainer").finish_non_exhaustive()
    }
}

impl Explainer {
    /// Loads the program of `object` over the maps pinned under `pin_directory`.
    ///
    /// # Errors
    ///
    /// Nothing is pinned there, or the kernel refuses the program.
    pub fn load(object: &[u8], pin_directory: &Path) -> Result<Self, KernelError> {
        let mut loader = EbpfLoader::new();
        for name in abi::MAPS {
            let path = pin_directory.join(MAPS_FOLDER).join(name);
            if !path.exists() {
                // aya would make a map of its own, and pin it.
                return Err(map_not_there(name));
            }
            loader.map_pin_path(name, path);
        }
        let mut ebpf = loader.load(object).map_err(|error| not_loaded(&error))?;
        let absent = || KernelError::NotInObject { name: EXPLAIN_PROGRAM };
        let program = ebpf.program_mut(EXPLAIN_PROGRAM).ok_or_else(absent)?;
        let program: &mut Xdp = program.try_into().map_err(|error| program_not_loaded(&error))?;
        program.load().map_err(|error| program_not_loaded(&error))?;
        Ok(Self { ebpf })
    }

    /// What would be done with `frame`, which must be [`EXPLANATION_OFFSET`] and the size of an
    /// [`Explanation`] long, its headers before that offset.
    ///
    /// # Errors
    ///
    /// The kernel does not run it, or the frame is too short.
    pub fn explain(&mut self, frame: &[u8]) -> Result<Explanation, KernelError> {
        let failed = |reason: String| KernelError::Explain { reason };
        let program = self.ebpf.program_mut(EXPLAIN_PROGRAM).expect("load found it");
        let program: &mut Xdp = program.try_into().expect("load saw what it is");
        let mut frame_out = vec![0; frame.len() + 64];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut frame_out),
            ..TestRunOptions::default()
        };
        let ran = program.test_run(options).map_err(|error| failed(error.to_string()))?;
        if ran.return_value != XDP_PASS {
            return Err(failed(format!("it returned {}", ran.return_value)));
        }
        let bytes =
            frame_out.get(EXPLANATION_OFFSET..EXPLANATION_OFFSET + size_of::<Explanation>());
        bytes
            .and_then(Explanation::from_bytes)
            .ok_or_else(|| failed(format!("a frame of {} bytes has no room", frame.len())))
    }
}
