//! What a response must hold besides its status: a header, and a text in its body.

use crate::limits::RESPONSE_BYTES_MAX;
use crate::pattern::{Pattern, Search};

/// What a response must hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Content {
    /// A header that must be there.
    pub header: Option<WantedHeader>,
    /// A text that must stand in the body.
    pub body: Option<Pattern>,
    /// Bytes of the body that are read at most when a text is looked for in it, the lines of a
    /// chunked body included.
    pub body_bytes_max: u64,
}

/// A header that must be there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WantedHeader {
    /// Its name in lower case; not empty.
    pub name: Box<[u8]>,
    /// What its value must contain; `None` = anything.
    pub value: Option<Pattern>,
}

/// What a response lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lack {
    /// The header, or the text in it.
    Header,
    /// The text in the body.
    Body,
}

impl Content {
    /// Anything will do.
    pub const ANY: Self = Self { header: None, body: None, body_bytes_max: RESPONSE_BYTES_MAX };

    /// Bytes of a response that are read at most.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        match self.body {
            Some(_) => RESPONSE_BYTES_MAX.saturating_add(self.body_bytes_max),
            None => RESPONSE_BYTES_MAX,
        }
    }
}

/// What of it was found so far in one response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    place: Place,
    header: bool,
    body: Search,
    /// Bytes of the body read.
    body_bytes: u64,
}

/// Where in the header section the next byte stands.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// At a line's start; the value that a fold would continue, if the last field was the wanted.
    LineStart(Option<Search>),
    /// So many bytes of the wanted name matched.
    Name(u16),
    Value(Search),
    /// On to the line's end.
    Other,
}

impl Found {
    pub(crate) const NEW: Self =
        Self { place: Place::LineStart(None), header: false, body: Search::NEW, body_bytes: 0 };

    /// Bytes of the header section; its shape is judged elsewhere.
    pub(crate) fn on_header(&mut self, bytes: &[u8], content: &Content) {
        let Some(wanted) = &content.header else {
            return;
        };
        for &byte in bytes {
            if self.header {
                return;
            }
            self.on_header_byte(byte, wanted);
        }
    }

    /// Bytes of the body itself.
    pub(crate) fn on_body(&mut self, bytes: &[u8], content: &Content) {
        if let Some(body) = &content.body {
            self.body.on_bytes(bytes, body);
        }
    }

    /// Counts bytes of the body, framing included; says whether enough were read.
    pub(crate) fn read_body(&mut self, count: usize, content: &Content) -> bool {
        self.body_bytes += count as u64;
        content.body.is_some() && content.body_bytes_max <= self.body_bytes
    }

    /// Bytes of the body that may still be read.
    pub(crate) const fn body_room(&self, content: &Content) -> u64 {
        match content.body {
            Some(_) => content.body_bytes_max.saturating_sub(self.body_bytes),
            None => u64::MAX,
        }
    }

    /// What is lacking.
    pub(crate) fn lack(&self, content: &Content) -> Option<Lack> {
        if content.header.is_some() && !self.header {
            return Some(Lack::Header);
        }
        let body = content.body.as_ref()?;
        (!self.body.is_found(body)).then_some(Lack::Body)
    }

    fn on_header_byte(&mut self, byte: u8, wanted: &WantedHeader) {
        self.place = match (self.place, byte) {
            (Place::Value(search), b'\n') => Place::LineStart(Some(search)),
            (_, b'\n') => Place::LineStart(None),
            // A fold goes on with the value of the line before (RFC 9112, section 5.2).
            (Place::LineStart(Some(search)), b' ' | b'\t') | (Place::Value(search), _) => {
                self.on_value_byte(search, byte, wanted)
            }
            (Place::LineStart(_), _) => self.after_name(0, byte, wanted),
            (Place::Name(length), _) => self.after_name(length, byte, wanted),
            (Place::Other, _) => Place::Other,
        };
    }

    fn on_value_byte(&mut self, mut search: Search, byte: u8, wanted: &WantedHeader) -> Place {
        if let Some(value) = &wanted.value {
            search.on_bytes(&[byte], value);
            self.header = search.is_found(value);
        }
        Place::Value(search)
    }

    /// The place after a byte of a name of which `length` bytes matched.
    fn after_name(&mut self, length: u16, byte: u8, wanted: &WantedHeader) -> Place {
        match wanted.name.get(usize::from(length)) {
            Some(expected) if *expected == byte.to_ascii_lowercase() => Place::Name(length + 1),
            None if byte == b':' => {
                self.header = wanted.value.is_none();
                Place::Value(Search::NEW)
            }
            // Blanks before the colon, which the header's own parser lets through.
            None if matches!(byte, b' ' | b'\t') => Place::Name(length),
            _ => Place::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanting(name: &str, value: &str) -> Content {
        let header =
            WantedHeader { name: name.as_bytes().into(), value: Pattern::new(value.as_bytes()) };
        Content { header: Some(header), ..Content::ANY }
    }

    fn has(content: &Content, section: &str) -> bool {
        let whole = {
            let mut found = Found::NEW;
            found.on_header(section.as_bytes(), content);
            found.lack(content).is_none()
        };
        let mut found = Found::NEW;
        section.bytes().for_each(|byte| found.on_header(&[byte], content));
        assert_eq!(found.lack(content).is_none(), whole, "split or whole: {section:?}");
        whole
    }

    #[test]
    fn header_is_found_by_its_name_in_any_case_and_a_part_of_its_value() {
        let ready = wanting("x-ready", "yes");
        for section in [
            "X-Ready: yes\r\n\r\n",
            "x-READY:yes\n\n",
            "A: b\r\nX-Ready: oh yes, it is\r\n\r\n",
            "X-Ready: no\r\nX-Ready: yes\r\n\r\n",
            "X-Ready: no,\r\n  yes\r\n\r\n",
            "X-Ready : yes\r\n\r\n",
        ] {
            assert!(has(&ready, section), "{section:?}");
        }
        for section in [
            "X-Ready: no\r\n\r\n",
            "X-Ready: YES\r\n\r\n",
            "X-Ready-Too: yes\r\n\r\n",
            "Not-X-Ready: yes\r\n\r\n",
            "X-Read: yes\r\n\r\n",
            "A: X-Ready: yes\r\n\r\n",
            "X-Ready: y\r\nB: es\r\n\r\n",
            "X-Ready: no\r\nB: c\r\n yes\r\n\r\n",
        ] {
            assert!(!has(&ready, section), "{section:?}");
        }
    }

    #[test]
    fn header_without_a_wanted_value_need_only_be_there() {
        let present = wanting("x-ready", "");
        assert!(has(&present, "X-Ready:\r\n\r\n"));
        assert!(!has(&present, "X-Other: x-ready\r\n\r\n"));
    }

    #[test]
    fn value_may_begin_with_a_colon() {
        let colon = wanting("a", ":b");
        assert!(has(&colon, "A: :b\r\n"));
        assert!(!has(&colon, "A:b\r\n"));
    }
}
