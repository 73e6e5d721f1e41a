//! Programs on an interface, where real packets come by.

use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, Xdp, XdpMode};
use sickbay_shared::abi;

use super::{Entrance, Steering, program_mut};

impl Steering {
    /// Attaches a program to an interface of the calling thread's network namespace, for as long as
    /// this lives.
    ///
    /// # Panics
    ///
    /// When the kernel refuses.
    pub fn attach(&mut self, entrance: Entrance, interface: &str) {
        match entrance {
            Entrance::Xdp => {
                let program: &mut Xdp = program_mut(&mut self.ebpf, abi::XDP_PROGRAM);
                program.attach(interface, XdpMode::Driver).expect("XDP attaches to a veth");
            }
            Entrance::Tc => {
                let program: &mut SchedClassifier = program_mut(&mut self.ebpf, abi::TC_PROGRAM);
                let options = TcAttachOptions::TcxOrder(LinkOrder::first());
                program
                    .attach_with_options(interface, TcAttachType::Ingress, options)
                    .expect("TC attaches to any interface");
            }
        }
    }
}
