//! What is to be probed and by which rule: the validated input of a prober.
//!
//! One [`Plan`] a shard. Indices are dense and local to the plan; the caller keeps the maps to
//! names and to global indices.

use crate::content::Content;
use crate::past::Past;
use crate::pattern::Pattern;
use crate::statuses::Statuses;

/// A moment of CLOCK_MONOTONIC, or a span of time, in ns. Virtual in tests.
pub type Nanos = u64;

/// Index into [`Plan::targets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetIndex(pub u32);

/// Index into [`Plan::probes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeIndex(pub u32);

/// Index into [`Plan::judges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JudgeIndex(pub u32);

/// Index of an in-flight probe's place, below [`Plan::slot_count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

/// Everything one shard's prober works on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How to probe.
    pub probes: Vec<ProbeSpec>,
    /// What to probe.
    pub targets: Vec<TargetSpec>,
    /// What is known of them from before, ascending by target; those without begin anew, by their
    /// `initial`.
    pub past: Vec<Past>,
    /// Who judges what: a backend's verdict over a target's register. Sorted by target.
    pub judges: Vec<JudgeSpec>,
    /// Probes in flight at once, at least 2. Targets that are sick, or whose last probe
    /// ran into its deadline, hold at most half of them.
    pub slot_count: u32,
    /// Mixed into each target's phase, so that many hosts do not probe in lock-step.
    pub phase_seed: u64,
    /// Room for what is added while the prober runs.
    pub room: Room,
}

/// Places kept free for targets and judges that are added while the prober runs: nothing is
/// allocated then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Room {
    /// Targets besides those of the plan.
    pub targets: u32,
    /// Judges besides those of the plan.
    pub judges: u32,
}

impl Room {
    /// Nothing can be added.
    pub const NONE: Self = Self { targets: 0, judges: 0 };
}

/// How to probe: the times and what counts as good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// From one scheduled start to the next.
    pub interval_ns: Nanos,
    /// One deadline for the whole probe, from its start to the end of the response.
    pub timeout_ns: Nanos,
    /// What is asked and what answer is good.
    pub kind: ProbeKind,
    /// How the interval changes with what is found.
    pub pace: Pace,
    /// Whose behaviour an HTTP probe has.
    pub compat: Compat,
}

/// How the interval changes with what is found, and how far a probe strays from its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pace {
    /// The interval while the last result disagrees with a judge's state, or a judge has none yet:
    /// counted from the last probe, so that what is about to change is seen soon.
    pub fast_ns: Option<Nanos>,
    /// The interval while every judge says sick and the last result agrees.
    pub sick_ns: Option<Nanos>,
    /// Each probe is late by its own share of its interval, below this: 0 ..= 50. The share is
    /// hashed from target and moment, so the average rate is what the interval says.
    pub jitter_percent: u8,
}

impl Pace {
    /// One interval whatever is found, to the tick.
    pub const STEADY: Self = Self { fast_ns: None, sick_ns: None, jitter_percent: 0 };
}

/// Whose behaviour an HTTP probe has. A TCP probe has always its own: Varnish knows none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Compat {
    /// Its own: the response ends by its framing, the status line is read strictly, informational
    /// responses are passed over, the period is kept from the schedule, and the average knows real
    /// times alone.
    #[default]
    Off,
    /// Varnish's (7.1.1), so that its outcome, bits and text are those of varnishd: the response
    /// ends when the peer closes, its first line is judged as `sscanf` would, the period runs from
    /// one probe's end to the next one's start, and `initial` weighs on the average. Without its
    /// bugs: a reply is judged by its own bytes, and a fault of this host is no result.
    Varnish {
        /// Varnish's `.expect_close` (7.3; always true before): a peer that does not close in time
        /// has failed. When false, what has come by then is judged.
        expect_close: bool,
    },
}

impl Compat {
    /// As Varnish 7.1.1.
    pub const VARNISH: Self = Self::Varnish { expect_close: true };

    /// Whether it is Varnish's behaviour.
    #[must_use]
    pub const fn is_varnish(self) -> bool {
        matches!(self, Self::Varnish { .. })
    }
}

/// What is asked and what answer is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// A TCP connection that opens is good.
    Tcp,
    /// A TCP connection on which these bytes come is good; the engine may send some first.
    Banner {
        /// What must come.
        expected: Pattern,
        /// How many bytes are read at most until it has.
        bytes_max: u64,
    },
    /// An HTTP/1 response with the expected status is good.
    Http {
        /// The statuses that are good. Informational ones other than 101 are passed over on the way
        /// to the final one, so they are never seen.
        expected: Statuses,
        /// The request's method was HEAD: the response has no body whatever its headers say.
        head: bool,
        /// What a response with such a status must hold.
        content: Content,
    },
}

impl ProbeKind {
    /// An HTTP probe by GET for which this status alone is good.
    ///
    /// # Panics
    ///
    /// When it is no status.
    #[must_use]
    pub const fn http(status: u16) -> Self {
        let expected = Statuses::only(status);
        Self::Http { expected, head: false, content: Content::ANY }
    }
}

/// How the target is reached; decides which of the registers `4`, `6`, `U` moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// A unix socket.
    Unix,
}

/// What to probe: the core knows neither its address nor its request, only who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSpec {
    /// Hash of address, port and request. Its phase follows from it.
    pub identity: u128,
    /// How.
    pub probe: ProbeIndex,
    /// Which of the connect registers moves.
    pub family: Family,
    /// The family of its second address: tried when the first cannot be connected to, by probes that
    /// behave as Varnish's alone.
    pub second: Option<Family>,
    /// Good results assumed before the first real one: that many ones are shifted into `happy`
    /// (Varnish: `min(initial, threshold)`).
    pub initial: u8,
}

/// A backend's verdict over one target's register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgeSpec {
    /// Whose register.
    pub target: TargetIndex,
    /// The rule.
    pub rule: Rule,
    /// What becomes of the verdict when the target turns unknown.
    pub on_unknown: OnUnknown,
}

/// What becomes of a verdict when its target is unknown: nothing determinate came for
/// max([`UNKNOWN_INTERVALS`](crate::limits::UNKNOWN_INTERVALS) intervals,
/// [`UNKNOWN_NS_MIN`](crate::limits::UNKNOWN_NS_MIN)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnUnknown {
    /// The last verdict holds.
    #[default]
    Keep,
    /// Sick until the next determinate result.
    Sick,
}

/// How a register becomes a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Varnish: healthy iff at least `threshold` of the newest `window` results are good.
    Window {
        /// 1 ..= 64.
        window: u8,
        /// 0 ..= `window`.
        threshold: u8,
    },
    /// HAProxy and TR7: sick after `fall` bad results in a row, healthy after `rise` good ones;
    /// otherwise as before.
    Consecutive {
        /// 1 ..= 64.
        fall: u8,
        /// 1 ..= 64.
        rise: u8,
    },
}

impl Rule {
    /// The rule's good results in a row that make an empty register healthy.
    #[must_use]
    pub const fn goods_to_healthy(self) -> u8 {
        match self {
            Self::Window { threshold, .. } => threshold,
            Self::Consecutive { rise, .. } => rise,
        }
    }
}
