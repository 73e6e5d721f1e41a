//! The programs, run packet by packet; also from several threads at once.

use aya::Ebpf;
use aya::programs::{SchedClassifier, TestRun, TestRunOptions, Xdp};
use sickbay_shared::abi;

use super::{Entrance, Ran, program};

/// What runs the loaded programs; each thread may have one.
#[derive(Clone, Copy)]
pub struct Runner<'steering>(pub(super) &'steering Ebpf);

impl Runner<'_> {
    /// Runs one packet through a program.
    ///
    /// # Panics
    ///
    /// When the kernel refuses; see [`Entrance::can_run`].
    #[must_use]
    pub fn run(self, entrance: Entrance, frame: &[u8]) -> Ran {
        let mut data_out = vec![0; frame.len() + 64];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut data_out),
            ..TestRunOptions::default()
        };
        let result = match entrance {
            Entrance::Xdp => program::<Xdp>(self.0, abi::XDP_PROGRAM).test_run(options),
            Entrance::Tc => program::<SchedClassifier>(self.0, abi::TC_PROGRAM).test_run(options),
        }
        .unwrap_or_else(|error| panic!("test-run of {frame:02x?}: {error:?}"));
        data_out.truncate(result.data_size_out as usize);
        Ran { action: result.return_value, frame: data_out }
    }
}
