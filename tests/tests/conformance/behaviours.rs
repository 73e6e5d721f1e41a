//! The scripted behaviours, and of each how the default mode differs from Varnish and why.
//!
//! What Varnish makes of them stands nowhere here: Varnish says it.

use std::time::Duration;

use sickbay_tests::script::{Behaviour, Place, Step};

/// What servers write.
mod answers;
/// What servers do.
mod connections;
/// Status lines that only `sscanf` takes, or that even it does not.
mod scanned;

/// The deadline of the probes that meet these behaviours.
pub(crate) const TIMEOUT_MS: u32 = 1000;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A behaviour and what is expected of those who probe it.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) behaviour: Behaviour,
    pub(crate) noise: Noise,
    /// A plain bug of Varnish's, which sickbay has in neither mode: what both modes give instead,
    /// and why.
    pub(crate) bug: Option<Difference>,
    /// How the default mode differs; `None` = it does not.
    pub(crate) default: Option<Difference>,
}

/// Bits and text in place of Varnish's, by the turn of the script.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// `exceeded by Ns` stands for any measured time.
    pub(crate) records: &'static [(&'static str, &'static str)],
    /// Why.
    pub(crate) reason: &'static str,
}

/// What differs from run to run with Varnish itself, so that no record can be held to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Nothing: records must be equal.
    None,
    /// The server resets without waiting for the request, so it depends on the scheduler which of
    /// the client's system calls meets it. `Open error 104`, `Write error 104` and `Write error 32`
    /// with their bits count as `Read error 104` with `4---Xr--`.
    Reset,
    /// The server still sends when the deadline comes, so it depends on the scheduler whether the
    /// deadline falls into a read or into a wait: `Poll timeout … exceeded by …` counts as
    /// `Poll error 110`.
    Endless,
}

impl Row {
    fn new(name: &'static str, place: Place, turns: Vec<Vec<Step>>) -> Self {
        let behaviour = Behaviour { name, place, turns };
        Self { behaviour, noise: Noise::None, bug: None, default: None }
    }

    fn default(
        mut self,
        records: &'static [(&'static str, &'static str)],
        reason: &'static str,
    ) -> Self {
        self.default = Some(Difference { records, reason });
        self
    }

    fn bug(
        mut self,
        records: &'static [(&'static str, &'static str)],
        reason: &'static str,
    ) -> Self {
        self.bug = Some(Difference { records, reason });
        self
    }

    fn noise(mut self, noise: Noise) -> Self {
        self.noise = noise;
        self
    }
}

/// All behaviours.
pub(crate) fn rows() -> Vec<Row> {
    [
        answers::well_formed(),
        answers::lines(),
        answers::framing(),
        scanned::rows(),
        connections::timing(),
        connections::breaking(),
        connections::sequences(),
        connections::places(),
    ]
    .concat()
}

const STRICT: &str =
    "a status line is HTTP/1.DIGIT SP 3DIGIT and nothing else (RFC 9112, section 4)";
const FRAMED: &str =
    "the response ends where its framing says, not when the peer closes (section 6.3)";
const CUT: &str = "the peer closed before the response's framing was complete (section 8)";
const WORDED: &str = "a timeout says in which phase, and by how much";

/// Reads the request, sends, closes.
fn answer(name: &'static str, bytes: &[u8]) -> Row {
    scripted(name, [Step::AwaitRequest, Step::Send(bytes.to_vec())])
}

fn scripted<const N: usize>(name: &'static str, steps: [Step; N]) -> Row {
    Row::new(name, Place::Ipv4, vec![Vec::from(steps)])
}

fn pause(milliseconds: u64) -> Step {
    Step::Pause(Duration::from_millis(milliseconds))
}

fn send(bytes: &[u8]) -> Step {
    Step::Send(bytes.to_vec())
}
