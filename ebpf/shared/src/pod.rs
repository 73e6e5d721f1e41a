//! Plain old data: structs as bytes and back, for maps and memory maps. The one unsafe file here.
#![expect(unsafe_code, reason = "a map's value is bytes; these types are nothing else")]

use crate::abi::{
    AddressPrefixKey, Backend, BackendCounters, BackendRef, Budget, DropRecord, EmbryonicEntry,
    EmbryonicLine, Explanation, Facts, FlowEntry, FlowKeyV4, FlowKeyV6, FlowMarks, FragmentEntry,
    FragmentKey, GlobalCounters, Header, Heartbeat, Pool, PortPrefixKey, Service, ServiceCounters,
    ServiceKey, Slot, TargetRecord, Verdict,
};

/// A type that is nothing but its bytes.
///
/// # Safety
///
/// The type is `repr(C)` or `repr(transparent)`, has no padding, and every bit pattern is a value.
pub unsafe trait Pod: Copy + Default + 'static {
    /// The value's bytes, in host order.
    fn as_bytes(&self) -> &[u8] {
        // SAFETY: a Pod has no padding, so all its bytes are initialised (the trait's promise).
        unsafe {
            core::slice::from_raw_parts(core::ptr::from_ref(self).cast::<u8>(), size_of::<Self>())
        }
    }

    /// The value whose bytes these are; `None` when there are fewer or more than its size.
    #[must_use]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        // SAFETY: the length is the type's, any bit pattern is a value (the trait's promise), and
        // read_unaligned asks for no alignment.
        Some(unsafe { core::ptr::read_unaligned(bytes.as_ptr().cast::<Self>()) })
    }
}

macro_rules! pod {
    ($($name:ty),* $(,)?) => {
        $(
            // SAFETY: repr(C) or transparent over integers, arrays of them and f64; abi.rs asserts
            // that size and offsets leave no padding.
            unsafe impl Pod for $name {}
        )*
    };
}

pod!(u32, u64, BackendRef, Slot);
pod!(
    Header, Heartbeat, Pool, ServiceKey, Service, Backend, FlowKeyV4, FlowKeyV6, FlowEntry,
    FlowMarks
);
pod!(
    EmbryonicEntry,
    EmbryonicLine,
    AddressPrefixKey,
    PortPrefixKey,
    FragmentKey,
    FragmentEntry,
    Budget,
    DropRecord
);
pod!(Explanation, Facts, Verdict);
pod!(TargetRecord, ServiceCounters, BackendCounters, GlobalCounters);
