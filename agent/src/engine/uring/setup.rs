//! How a ring is made: its size, the operations that this kernel must have, and its restrictions.
//!
//! A ring is made disabled, given the list of what it will ever take, and enabled by the thread
//! that uses it: from then on any other operation is refused (EACCES), whoever writes into it.

use io_uring::{IoUring, Probe, opcode, register::Restriction, squeue};

use super::EngineError;

/// Submission entries: how many operations one system call can hand over.
const SUBMISSION_ENTRIES: u32 = 1024;
/// The most completion entries that a kernel gives a ring.
const COMPLETION_ENTRIES_MAX: u32 = 65_536;

/// What every probe needs, with what a kernel lacks that has it not.
const OPERATIONS: [(u8, &str); 6] = [
    (opcode::Socket::CODE, "the io_uring operation socket (5.19)"),
    (opcode::Connect::CODE, "the io_uring operation connect (5.5)"),
    (opcode::Send::CODE, "the io_uring operation send (5.6)"),
    (opcode::Recv::CODE, "the io_uring operation recv (5.6)"),
    (opcode::Close::CODE, "the io_uring operation close (5.6)"),
    (opcode::AsyncCancel::CODE, "the io_uring operation async_cancel (5.5)"),
];
/// IORING_REGISTER_FILES_UPDATE and IORING_REGISTER_SYNC_CANCEL (include/uapi/linux/io_uring.h):
/// the socket of a named connection, and the end of a ring.
const REGISTRATIONS: [u8; 2] = [6, 24];

/// A ring of the kind used here, disabled, with every operation that is used on each, or why there
/// is none; and whether it can bind.
pub(super) fn set_up(slots: u32) -> Result<(IoUring, bool), EngineError> {
    // Per slot one operation and one cancel can be unanswered, so the queue does not overflow; on a
    // ring so large that it could, the kernel keeps what does not fit (IORING_FEAT_NODROP).
    let completions = (2 * slots).clamp(2 * SUBMISSION_ENTRIES, COMPLETION_ENTRIES_MAX);
    let uring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_r_disabled()
        .setup_cqsize(completions)
        .build(SUBMISSION_ENTRIES)
        .map_err(|source| EngineError::from_setup(source, slots))?;
    if !uring.params().is_feature_ext_arg() {
        return Err(EngineError::missing("waiting with a timeout in io_uring (5.11)"));
    }
    if !uring.params().is_feature_skip_cqe_on_success() {
        return Err(EngineError::missing("IOSQE_CQE_SKIP_SUCCESS (5.17)"));
    }
    let mut probe = Probe::new();
    uring
        .submitter()
        .register_probe(&mut probe)
        .map_err(|source| EngineError::Call { call: "listing operations", source })?;
    match OPERATIONS.iter().find(|(code, _)| !probe.is_supported(*code)) {
        Some((_, feature)) => Err(EngineError::missing(feature)),
        None => Ok((uring, probe.is_supported(opcode::Bind::CODE))),
    }
}

/// Has the ring take nothing but what probes need, and enables it for this thread. What else is to
/// be registered with it has been.
pub(super) fn restrict_and_enable(uring: &IoUring, bind: bool) -> Result<(), EngineError> {
    // A socket's option is a command of its driver (IORING_OP_URING_CMD, 5.19).
    let options = [opcode::SetSockOpt::CODE];
    let operations = OPERATIONS.iter().map(|(code, _)| *code).chain(options);
    // A kernel refuses a list with an operation that it does not have.
    let operations = operations.chain(bind.then_some(opcode::Bind::CODE));
    let flags = squeue::Flags::IO_LINK
        | squeue::Flags::IO_HARDLINK
        | squeue::Flags::SKIP_SUCCESS
        | squeue::Flags::FIXED_FILE;
    let mut restrictions: Vec<Restriction> = operations
        .map(Restriction::sqe_op)
        .chain(REGISTRATIONS.map(Restriction::register_op))
        .chain([Restriction::sqe_flags_allowed(flags.bits())])
        .collect();
    let failed = |call| move |source| EngineError::Call { call, source };
    let submitter = uring.submitter();
    submitter
        .register_restrictions(&mut restrictions)
        .map_err(failed("restricting a ring to its operations"))?;
    submitter.register_enable_rings().map_err(failed("enabling a ring"))
}
