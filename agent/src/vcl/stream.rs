//! The tokens of a VCL in their order, includes followed wherever they stand, as Varnish does it:
//! before anything is parsed.

use super::source::{BYTES_MAX, DEPTH_MAX, FILES_MAX, Source};
use super::token::{self, Kind, LexFault, Token};
use crate::config::{Problem, quoted};

/// A problem that ends the reading; boxed, because it is rare and large.
pub(super) type Fault = Box<Problem>;

/// The one way through all files, one token ahead.
#[derive(Debug)]
pub(super) struct Stream {
    sources: Vec<Source>,
    /// The files that are being read: each with the offset behind its last token.
    open: Vec<(usize, usize)>,
    /// The token that is looked at.
    current: Token,
}

impl Stream {
    /// At the first token of `first`.
    pub(super) fn new(first: Source) -> Result<Self, Fault> {
        let current = Token { kind: Kind::End, file: 0, start: 0, end: 0 };
        let mut stream = Self { sources: vec![first], open: vec![(0, 0)], current };
        stream.current = stream.read()?;
        Ok(stream)
    }

    /// The token that is looked at.
    pub(super) fn peek(&self) -> Token {
        self.current
    }

    /// The token that was looked at; from now on the next one is.
    pub(super) fn take(&mut self) -> Result<Token, Fault> {
        let taken = self.current;
        self.current = self.read()?;
        Ok(taken)
    }

    /// The bytes of a token as they are written.
    pub(super) fn text(&self, token: Token) -> &[u8] {
        &self.sources[token.file].bytes[token.start..token.end]
    }

    /// What a string says.
    pub(super) fn content(&self, token: Token) -> Vec<u8> {
        let Kind::Text(delimiter) = token.kind else { return self.text(token).to_vec() };
        let bytes = &self.sources[token.file].bytes;
        bytes[token.start + delimiter..token.end - delimiter].to_vec()
    }

    /// Whether the token is this name.
    pub(super) fn is_name(&self, token: Token, name: &str) -> bool {
        token.kind == Kind::Name && self.text(token) == name.as_bytes()
    }

    /// The mark `mark`, and past it.
    pub(super) fn expect_mark(&mut self, mark: u8) -> Result<Token, Fault> {
        if self.current.kind == Kind::Mark(mark) {
            return self.take();
        }
        let mark = char::from(mark);
        Err(self.unexpected(&format!("'{mark}'"), &format!("write \"{mark}\" before it")))
    }

    /// A name, and past it.
    pub(super) fn expect_name(&mut self) -> Result<Token, Fault> {
        if self.current.kind == Kind::Name {
            return self.take();
        }
        Err(self.unexpected("ID", "write a name here: a letter, then letters, digits, _ and -"))
    }

    /// A string, and past it.
    pub(super) fn expect_text(&mut self) -> Result<Token, Fault> {
        if matches!(self.current.kind, Kind::Text(_)) {
            return self.take();
        }
        Err(self.unexpected("CSTR", "write a string in double quotes"))
    }

    /// Varnish's `Expected … got …` about the token that is looked at.
    pub(super) fn unexpected(&self, wanted: &str, mend: &str) -> Fault {
        let problem = format!("Expected {wanted} got {}", self.shown(self.current));
        self.fault(self.current, problem, mend)
    }

    /// A token as Varnish's errors show it.
    pub(super) fn shown(&self, token: Token) -> String {
        match token.kind {
            Kind::End => "end of input".to_owned(),
            Kind::InlineC => "C{ ... }C".to_owned(),
            _ => {
                let quoted = quoted(&String::from_utf8_lossy(self.text(token)));
                // Its own quotes stay as they are written: one line and one pair are enough.
                let plain = quoted[1..quoted.len() - 1].replace("\\\"", "\"");
                format!("'{plain}'")
            }
        }
    }

    /// A problem at a token.
    pub(super) fn fault(
        &self,
        token: Token,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) -> Fault {
        self.fault_at(token.file, token.start, problem, mend)
    }

    fn fault_at(
        &self,
        file: usize,
        offset: usize,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) -> Fault {
        let source = &self.sources[file];
        let (line, column) = source.position(offset);
        Box::new(Problem {
            file: source.name.clone(),
            line,
            column,
            path: String::new(),
            problem: problem.into(),
            mend: mend.into(),
        })
    }

    /// Line and column of a token, and its file.
    pub(super) fn place(&self, token: Token) -> (String, usize, usize) {
        let source = &self.sources[token.file];
        let (line, column) = source.position(token.start);
        (source.name.clone(), line, column)
    }

    /// The next token of all files; the end of an included file is none.
    fn read(&mut self) -> Result<Token, Fault> {
        loop {
            let token = self.read_plain()?;
            if token.kind == Kind::End && 1 < self.open.len() {
                self.open.pop();
            } else if self.is_name(token, "include") {
                self.include()?;
            } else {
                return Ok(token);
            }
        }
    }

    /// The next token of the file that is being read.
    fn read_plain(&mut self) -> Result<Token, Fault> {
        let (file, offset) = *self.open.last().expect("the first file is never closed");
        match token::next(&self.sources[file].bytes, file, offset) {
            Ok(token) => {
                self.open.last_mut().expect("as just now").1 = token.end;
                Ok(token)
            }
            Err(LexFault { offset, problem, mend }) => {
                Err(self.fault_at(file, offset, problem, mend))
            }
        }
    }

    /// Opens the file that stands behind `include`.
    fn include(&mut self) -> Result<(), Fault> {
        let name = self.read_plain()?;
        if name.kind == Kind::Mark(b'+') || name.kind == Kind::Mark(b'-') {
            let mend = "include each file by its name";
            return Err(self.fault(name, "include with flags, such as +glob, is not read", mend));
        }
        if !matches!(name.kind, Kind::Text(_)) {
            let problem = "include not followed by string constant.";
            return Err(self.fault(name, problem, "write include \"FILE\";"));
        }
        let semicolon = self.read_plain()?;
        if semicolon.kind != Kind::Mark(b';') {
            let problem = "include <string> not followed by semicolon.";
            return Err(self.fault(name, problem, "write include \"FILE\";"));
        }
        self.open(name)
    }

    fn open(&mut self, name: Token) -> Result<(), Fault> {
        if self.open.len() == DEPTH_MAX || self.sources.len() == FILES_MAX {
            let problem =
                format!("more than {FILES_MAX} includes, or {DEPTH_MAX} within each other");
            return Err(self.fault(name, problem, "include each file once, from the first one"));
        }
        let written = self.content(name);
        let shown = String::from_utf8_lossy(&written).escape_debug().to_string();
        let used: usize = self.sources.iter().map(|source| source.bytes.len()).sum();
        let source = &self.sources[name.file];
        let opened = source.include(&written, &self.sources[0], BYTES_MAX.saturating_sub(used));
        let included = opened.map_err(|why| {
            let mend = "name a file in the folder of the first one that this user may read";
            self.fault(name, format!("Cannot read file '{shown}' ({why})"), mend)
        })?;
        if self.open.iter().any(|(open, _)| self.sources[*open].is_same_file(&included)) {
            let problem = format!("Recursive use of file \"{shown}\"");
            return Err(self.fault(name, problem, "a file cannot include itself"));
        }
        self.sources.push(included);
        self.open.push((self.sources.len() - 1, 0));
        Ok(())
    }
}
