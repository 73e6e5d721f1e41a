//! What every object carries beside its programs: the licence and the panic handler.
#![expect(unsafe_code, reason = "the loader finds the licence by its section")]

/// The kernel lends its GPL-only helpers to programs of such a licence only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // Never reached; should it be compiled in, the verifier refuses the endless loop.
    loop {}
}
