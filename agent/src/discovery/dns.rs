//! Names in the DNS: what is asked, and what the records come to. Pure.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Answer;
use crate::config::{Newcomer, WEIGHT_MAX, check_host};
use crate::fleet::{Dns, Origin};

/// Which records of a name are backends.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Records {
    /// Its addresses, IPv4 and IPv6.
    #[default]
    Any,
    /// Its IPv4 addresses.
    A,
    /// Its IPv6 addresses.
    Aaaa,
    /// The hosts that its SRV records name, each with its port and weight.
    Srv,
}

/// What is asked of the DNS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Question {
    /// The name, in lower case.
    pub name: String,
    /// Which of its records.
    pub records: Records,
    /// The backends' port; 0 for SRV, whose records have it.
    pub port: u16,
    /// The backends' weight; 0 for SRV, whose records have it.
    pub weight: u32,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.port != 0 {
            write!(f, ":{}", self.port)?;
        }
        match self.records {
            Records::Any | Records::Srv => Ok(()),
            Records::A => write!(f, " (A)"),
            Records::Aaaa => write!(f, " (AAAA)"),
        }
    }
}

/// An SRV record that is followed, with the addresses of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    pub(super) port: u16,
    pub(super) weight: u16,
    pub(super) addresses: Vec<IpAddr>,
}

/// Who is meant by a name's addresses: sorted, because servers turn their answers round.
pub(super) fn of_addresses(question: &Question, addresses: &[IpAddr]) -> Answer {
    let (port, weight) = (question.port, question.weight);
    members(question, addresses.iter().map(|address| (*address, port, weight)))
}

/// Who is meant by SRV records of one priority. Weights above the largest that a backend can have
/// are brought below it, all in proportion; RFC 2782's 0 is the least share, not none.
pub(super) fn of_services(question: &Question, followed: &[Followed]) -> Answer {
    let largest = followed.iter().map(|it| u64::from(it.weight)).max().unwrap_or(0);
    let most = u64::try_from(WEIGHT_MAX).expect("it is positive");
    let share = |weight: u16| {
        let weight = u64::from(weight);
        let scaled = if most < largest { weight * most / largest } else { weight };
        u32::try_from(scaled.max(1)).expect("at most the largest weight")
    };
    let hosts = followed.iter().flat_map(|it| {
        it.addresses.iter().map(move |address| (*address, it.port, share(it.weight)))
    });
    members(question, hosts)
}

fn members(question: &Question, found: impl Iterator<Item = (IpAddr, u16, u32)>) -> Answer {
    let origin = Origin::Name(question.to_string().into());
    // What cannot be a backend is left out: an answer is nobody's mistake in a configuration.
    let sound = found.filter(|(address, port, _)| check_host(*address).is_ok() && *port != 0);
    let mut members: Vec<(SocketAddr, u32)> =
        sound.map(|(address, port, weight)| (SocketAddr::new(address, port), weight)).collect();
    members.sort_unstable();
    members.dedup_by_key(|(address, _)| *address);
    let member = |(address, weight): (SocketAddr, u32)| Newcomer {
        name: None,
        address: address.into(),
        weight,
        origin: origin.clone(),
    };
    members.into_iter().map(member).collect()
}

/// How long an answer is believed whose records have this time to live.
pub(super) fn believed(dns: &Dns, ttl: Duration) -> Duration {
    let (least, most) =
        (Duration::from_nanos(dns.ttl_min_ns), Duration::from_nanos(dns.ttl_max_ns));
    ttl.clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(records: Records, port: u16) -> Question {
        Question { name: "web.example.com".to_owned(), records, port, weight: 2 }
    }

    fn shown(answer: &Answer) -> Vec<(String, u32)> {
        answer.iter().map(|it| (it.address.to_string(), it.weight)).collect()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn addresses_are_members_whatever_their_order() {
        let question = question(Records::Any, 80);
        let turned = of_addresses(&question, &[ip("192.0.2.2"), ip("fd00::1"), ip("192.0.2.1")]);
        let expected = [("192.0.2.1:80", 2), ("192.0.2.2:80", 2), ("[fd00::1]:80", 2)];
        assert_eq!(shown(&turned), expected.map(|(text, weight)| (text.to_owned(), weight)));
        let again = of_addresses(&question, &[ip("192.0.2.1"), ip("192.0.2.2"), ip("fd00::1")]);
        assert_eq!(turned, again);
    }

    #[test]
    fn what_cannot_be_a_backend_is_left_out() {
        let of = |text: &str| of_addresses(&question(Records::Any, 80), &[ip(text)]).len();
        assert_eq!(
            [of("0.0.0.0"), of("224.0.0.1"), of("::ffff:192.0.2.1"), of("192.0.2.1")],
            [0, 0, 0, 1]
        );
    }

    #[test]
    fn services_have_their_own_ports_and_weights() {
        let of =
            |port, weight, address: &str| Followed { port, weight, addresses: vec![ip(address)] };
        let question = question(Records::Srv, 0);
        let answer = of_services(&question, &[of(8080, 5, "192.0.2.1"), of(8081, 0, "192.0.2.1")]);
        assert_eq!(
            shown(&answer),
            [("192.0.2.1:8080".to_owned(), 5), ("192.0.2.1:8081".to_owned(), 1)]
        );
        let answer =
            of_services(&question, &[of(1, 60_000, "192.0.2.1"), of(2, 30_000, "192.0.2.1")]);
        assert_eq!(
            shown(&answer),
            [("192.0.2.1:1".to_owned(), 1000), ("192.0.2.1:2".to_owned(), 500)]
        );
    }

    #[test]
    fn time_to_live_has_a_floor_and_a_ceiling() {
        let dns = Dns { ttl_min_ns: 2_000_000_000, ttl_max_ns: 9_000_000_000, ..Dns::default() };
        let of = |seconds| believed(&dns, Duration::from_secs(seconds)).as_secs();
        assert_eq!([of(0), of(1), of(5), of(3600)], [2, 2, 5, 9]);
    }

    #[test]
    fn question_is_shown_as_it_is_written() {
        assert_eq!(question(Records::Any, 80).to_string(), "web.example.com:80");
        assert_eq!(question(Records::Aaaa, 80).to_string(), "web.example.com:80 (AAAA)");
        assert_eq!(question(Records::Srv, 0).to_string(), "web.example.com");
    }
}
