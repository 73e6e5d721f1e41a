//! Which place of the ring's memory is whose: each target has the one of its index, with room for
//! those that are added, and behind all of them stand the second addresses of those that have two.

use std::collections::HashMap;

use super::Endpoint;

/// The places behind those of the first endpoints.
pub(super) struct Places {
    /// Targets that can be added: a place each.
    room: u32,
    /// Second addresses, as endpoints of their own.
    seconds: Vec<Endpoint>,
    /// Their places, by target.
    pub(super) second_of: HashMap<u32, u32>,
}

impl Places {
    pub(super) fn new(endpoints: &[Endpoint], room: u32) -> Self {
        let number = |count: usize| u32::try_from(count).expect("indices are u32");
        let first = number(endpoints.len()) + room;
        let mut places = Self { room, seconds: Vec::new(), second_of: HashMap::new() };
        for (target, endpoint) in (0..).zip(endpoints) {
            if let Some(address) = endpoint.second.clone() {
                places.second_of.insert(target, first + number(places.seconds.len()));
                places.seconds.push(Endpoint { address, second: None, ..endpoint.clone() });
            }
        }
        places
    }

    /// All places in their order; the room is empty.
    pub(super) fn all<'a>(&'a self, endpoints: &'a [Endpoint]) -> Vec<Option<&'a Endpoint>> {
        let room = (0..self.room).map(|_| None);
        let seconds = self.seconds.iter().map(Some);
        endpoints.iter().map(Some).chain(room).chain(seconds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{CloseMode, SocketOptions};

    #[test]
    fn second_addresses_stand_behind_the_room_for_targets_that_are_added() {
        let endpoint = |port: u16, second: Option<u16>| Endpoint {
            address: std::net::SocketAddr::from(([127, 0, 0, 1], port)).into(),
            second: second.map(|port| std::net::SocketAddr::from(([127, 0, 0, 2], port)).into()),
            request: vec![7],
            proxy_v1: false,
            close: CloseMode::Fin,
            socket: SocketOptions::default(),
        };
        let endpoints = [endpoint(1, None), endpoint(2, Some(20)), endpoint(3, Some(30))];
        let places = Places::new(&endpoints, 2);
        // Targets 0, 1 and 2; 3 and 4 are to come.
        assert_eq!(places.second_of, HashMap::from([(1, 5), (2, 6)]));
        let all = places.all(&endpoints);
        let shown = all.iter().map(|place| place.map(|it| it.address.to_string()));
        let shown: Vec<String> = shown.map(Option::unwrap_or_default).collect();
        let first = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"];
        let rest = ["", "", "127.0.0.2:20", "127.0.0.2:30"];
        assert_eq!(shown, [first.as_slice(), rest.as_slice()].concat());
        assert_eq!(all[5].map(|it| it.request.as_slice()), Some([7].as_slice()));
    }
}
