//! The top level of a VCL: its version, its definitions, and everything that is skipped.

use std::collections::{HashMap, HashSet};

use super::backend::{self, ProbeChoice};
use super::probe::{self, Probe};
use super::source::Source;
use super::stream::{Fault, Stream};
use super::token::{Kind, Token};
use super::{Place, Vcl};
use crate::config::{ConfigError, Problem, nearest};

/// Errors after which reading stops: more are not shown.
const ERRORS_MAX: usize = 100;
/// Words with a meaning at the top level, which no definition may have as its name.
const RESERVED: [&str; 6] = ["acl", "sub", "backend", "probe", "import", "vcl"];

/// The probes and backends of the VCL that begins with `first`.
pub(super) fn read(first: Source) -> Result<Vcl, ConfigError> {
    let begun = Stream::new(first).map(Reading::new);
    let read = begun.map_err(|fault| (vec![*fault], Vec::new())).and_then(|mut reading| {
        match reading.program() {
            Err(fault) => reading.errors.push(*fault),
            Ok(()) if reading.errors.is_empty() => return Ok(reading.finish()),
            Ok(()) => {}
        }
        Err((reading.errors, reading.vcl.warnings))
    });
    read.map_err(|(errors, warnings)| ConfigError { errors, warnings })
}

/// What a name is given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Probe(usize),
    Backend,
    /// An ACL, a subroutine or a module.
    Other(&'static str),
}

/// A VCL that is being read.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) stream: Stream,
    /// Whether its first line says `vcl 4.0;`.
    pub(super) is_4_0: bool,
    vcl: Vcl,
    /// What each backend's `.probe` says.
    choices: Vec<ProbeChoice>,
    default_probe: Option<usize>,
    has_default_backend: bool,
    names: HashMap<Vec<u8>, Named>,
    /// Names that stand in what is skipped, or behind `.probe`.
    mentioned: HashSet<Vec<u8>>,
    errors: Vec<Problem>,
}

impl Reading {
    fn new(stream: Stream) -> Self {
        Self {
            stream,
            is_4_0: false,
            vcl: Vcl::default(),
            choices: Vec::new(),
            default_probe: None,
            has_default_backend: false,
            names: HashMap::new(),
            mentioned: HashSet::new(),
            errors: Vec::new(),
        }
    }

    /// The next `.FIELD =`: its index in `known`. `seen` collects those that were given, each with
    /// the place of its name.
    pub(super) fn field(
        &mut self,
        known: &[&str],
        seen: &mut Vec<(usize, Token)>,
    ) -> Result<usize, Fault> {
        self.stream.expect_mark(b'.')?;
        let name = self.stream.expect_name()?;
        self.stream.expect_mark(b'=')?;
        let Some(field) = known.iter().position(|each| self.stream.is_name(name, each)) else {
            let problem = format!("Unknown field: {} at", self.stream.shown(name));
            let text = String::from_utf8_lossy(self.stream.text(name)).into_owned();
            return Err(self.stream.fault(name, problem, nearest(&text, known.iter().copied())));
        };
        if let Some((_, first)) = seen.iter().find(|(each, _)| *each == field) {
            let (_, line, _) = self.stream.place(*first);
            let problem = format!("Field {} redefined at:", self.stream.shown(name));
            let mend = format!("it is given in line {line} already; remove one of the two");
            return Err(self.stream.fault(name, problem, mend));
        }
        seen.push((field, name));
        Ok(field)
    }

    /// The probe that a backend names.
    pub(super) fn probe_named(&mut self, name: Token) -> Result<usize, Fault> {
        let text = self.stream.text(name);
        let shown = self.stream.shown(name);
        match self.names.get(text) {
            Some(Named::Probe(probe)) => {
                self.mentioned.insert(text.to_vec());
                Ok(*probe)
            }
            Some(other) => {
                let problem =
                    format!("Symbol {shown} has wrong type ({}), expected probe:", other.noun());
                Err(self.stream.fault(name, problem, "name a probe"))
            }
            None => {
                let problem = format!("Symbol not found: {shown}");
                let mend = "define the probe before the backend that uses it";
                Err(self.stream.fault(name, problem, mend))
            }
        }
    }

    pub(super) fn has_default_probe(&self) -> bool {
        self.default_probe.is_some()
    }

    /// Adds a probe; its index.
    pub(super) fn add_probe(&mut self, probe: Probe) -> usize {
        self.vcl.probes.push(probe);
        self.vcl.probes.len() - 1
    }

    /// Where a token stands.
    pub(super) fn place(&self, token: Token) -> Place {
        let (file, line, column) = self.stream.place(token);
        Place { file, line, column }
    }

    /// An error that does not end the reading.
    pub(super) fn problem(
        &mut self,
        at: Token,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.errors.push(*self.stream.fault(at, problem, mend));
    }

    pub(super) fn warning(
        &mut self,
        at: Token,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.vcl.warnings.push(*self.stream.fault(at, problem, mend));
    }

    fn program(&mut self) -> Result<(), Fault> {
        let first = self.stream.peek();
        if !self.stream.is_name(first, "vcl") {
            let mend = "write vcl 4.1; on the first line; check the file that includes this one";
            return Err(self.stream.fault(first, "VCL version declaration missing", mend));
        }
        let mut top_level = None;
        while self.errors.len() < ERRORS_MAX {
            let token = self.stream.peek();
            let word = match token.kind {
                Kind::End => break,
                Kind::InlineC => {
                    self.stream.take()?;
                    continue;
                }
                Kind::Name => self.stream.text(token).to_vec(),
                _ => Vec::new(),
            };
            match word.as_slice() {
                b"vcl" => self.version(&mut top_level)?,
                b"probe" => self.probe()?,
                b"backend" => self.backend()?,
                b"sub" => self.skip_block("sub")?,
                b"acl" => self.skip_block("acl")?,
                b"import" => self.skip_statement("import")?,
                _ => return Err(self.no_definition(token)),
            }
        }
        if self.vcl.backends.is_empty() && self.errors.is_empty() {
            if let Some(unused) = self.unused().first() {
                return Err(Box::new(unused.clone()));
            }
            let problem =
                "No backends or directors found in VCL program, at least one is necessary.";
            let mend = "add backend NAME { .host = \"ADDRESS\"; }, or backend NAME none;";
            let end = self.stream.peek();
            return Err(self.stream.fault(end, problem, mend));
        }
        Ok(())
    }

    fn no_definition(&self, token: Token) -> Fault {
        let problem = format!(
            "Expected one of 'acl', 'sub', 'backend', 'probe', 'import', or 'vcl' Found: {} at",
            self.stream.shown(token)
        );
        let mend = match token.kind {
            Kind::Mark(b';') => "remove it; nothing ends with \"};\"",
            _ => "only these begin a definition; directors are made in vcl_init since version 4",
        };
        self.stream.fault(token, problem, mend)
    }

    /// `vcl 4.1;`, anywhere; no file may have a higher version than the first one.
    fn version(&mut self, top_level: &mut Option<bool>) -> Result<(), Fault> {
        self.stream.take()?;
        let version = self.stream.peek();
        if version.kind != Kind::Fraction {
            return Err(self.stream.unexpected("FNUM", "write vcl 4.1;"));
        }
        self.stream.take()?;
        let (is_4_1, text) = match self.stream.text(version) {
            b"4.0" => (false, "4.0"),
            b"4.1" => (true, "4.1"),
            _ => {
                let shown = String::from_utf8_lossy(self.stream.text(version)).into_owned();
                let problem = format!("VCL version {shown} not supported.");
                return Err(self.stream.fault(version, problem, "write vcl 4.1;"));
            }
        };
        let first = *top_level.get_or_insert(is_4_1);
        self.is_4_0 = !first;
        if is_4_1 && !first {
            let problem = format!("VCL version {text} higher than the top level version 4.0");
            return Err(self.stream.fault(version, problem, "begin the first file with vcl 4.1;"));
        }
        if self.stream.peek().kind != Kind::Mark(b';') {
            let problem = "Expected 'vcl N.N;' found no semi-colon";
            return Err(self.stream.fault(version, problem, "write vcl 4.1;"));
        }
        self.stream.take()?;
        Ok(())
    }

    fn probe(&mut self) -> Result<(), Fault> {
        self.stream.take()?;
        let name = self.name("backend probe")?;
        let is_default = self.stream.is_name(name, "default");
        let index = self.vcl.probes.len();
        if !is_default {
            self.define(name, "Probe", Named::Probe(index))?;
        }
        let place = self.place(name);
        let text = String::from_utf8_lossy(self.stream.text(name)).into_owned();
        let parameters = probe::parse(self)?;
        self.add_probe(Probe { name: Some(text), place, parameters });
        if is_default {
            self.default_probe = Some(index);
        }
        Ok(())
    }

    fn backend(&mut self) -> Result<(), Fault> {
        let keyword = self.stream.take()?;
        let name = self.name("backend")?;
        if self.stream.is_name(name, "default") {
            if self.has_default_backend {
                let mend = "remove or rename one of the two";
                return Err(self.stream.fault(
                    keyword,
                    "Only one default director possible.",
                    mend,
                ));
            }
            self.has_default_backend = true;
        } else {
            self.define(name, "Backend", Named::Backend)?;
        }
        let (backend, choice) = backend::parse(self, name)?;
        self.vcl.backends.push(backend);
        self.choices.push(choice);
        Ok(())
    }

    /// The name of a definition, which is no path of names.
    fn name(&mut self, what: &str) -> Result<Token, Fault> {
        let name = self.stream.expect_name()?;
        if self.stream.peek().kind != Kind::Mark(b'.') {
            return Ok(name);
        }
        let mut end = self.stream.take()?;
        if self.stream.peek().kind == Kind::Name {
            end = self.stream.take()?;
        }
        let text = |token| String::from_utf8_lossy(self.stream.text(token)).into_owned();
        let dot = if end.kind == Kind::Name { "." } else { "" };
        let shown = format!("{}{dot}{}", text(name), text(end));
        let problem = format!("Name of {what}, '{shown}', contains illegal character '.'");
        Err(self.stream.fault(name, problem, "use letters, digits, _ and -"))
    }

    /// Gives out the name of a probe or a backend.
    fn define(&mut self, name: Token, what: &str, named: Named) -> Result<(), Fault> {
        let text = self.stream.text(name).to_vec();
        let shown = self.stream.shown(name);
        if RESERVED.iter().any(|word| self.stream.is_name(name, word)) {
            let problem = format!("Name {} must have type 'reserved'.", &shown[1..shown.len() - 1]);
            return Err(self.stream.fault(name, problem, "choose another name"));
        }
        if text.get(..4).is_some_and(|begin| begin.eq_ignore_ascii_case(b"vcl_")) {
            let problem = "Symbols named 'vcl_*' are reserved.";
            return Err(self.stream.fault(name, problem, "choose another name"));
        }
        let Some(known) = self.names.insert(text, named) else {
            return Ok(());
        };
        let problem = if known.noun() == named.noun() {
            format!("{what} {shown} redefined.")
        } else {
            format!("Name {shown} already defined.")
        };
        Err(self.stream.fault(name, problem, "remove or rename one of the two"))
    }

    /// `sub NAME { … }` or `acl NAME … { … }`.
    fn skip_block(&mut self, what: &'static str) -> Result<(), Fault> {
        let keyword = self.stream.take()?;
        self.skip_name(what)?;
        let mut depth: u32 = 0;
        loop {
            let token = self.skip_token()?;
            match token.kind {
                Kind::Mark(b'{') => depth += 1,
                Kind::Mark(b'}') if depth <= 1 => return Ok(()),
                Kind::Mark(b'}') => depth -= 1,
                Kind::End => {
                    let problem = "End of input while in compound statement";
                    let mend = format!("this {what} has no closing brace");
                    return Err(self.stream.fault(keyword, problem, mend));
                }
                _ => {}
            }
        }
    }

    /// `import … ;`
    fn skip_statement(&mut self, what: &'static str) -> Result<(), Fault> {
        let keyword = self.stream.take()?;
        self.skip_name(what)?;
        loop {
            match self.skip_token()?.kind {
                Kind::Mark(b';') => return Ok(()),
                Kind::End => {
                    let mend = "end it with \";\"";
                    let problem = "Expected ';' got end of input";
                    return Err(self.stream.fault(keyword, problem, mend));
                }
                _ => {}
            }
        }
    }

    /// The name of what is skipped: no probe or backend may have it.
    fn skip_name(&mut self, what: &'static str) -> Result<(), Fault> {
        let name = self.stream.expect_name()?;
        let text = self.stream.text(name).to_vec();
        self.names.entry(text).or_insert(Named::Other(what));
        Ok(())
    }

    /// Past a token, whose name is noted unless it is a part of something, as in `req.http.b`.
    fn skip_token(&mut self) -> Result<Token, Fault> {
        let token = self.stream.take()?;
        let next = self.stream.peek();
        if next.kind == Kind::Name && token.kind != Kind::Mark(b'.') {
            let text = self.stream.text(next);
            if !self.mentioned.contains(text) {
                let text = text.to_vec();
                self.mentioned.insert(text);
            }
        }
        Ok(token)
    }

    /// Binds default probes, as Varnish does when the VCL is loaded: the last one wins.
    fn finish(mut self) -> Vcl {
        for (backend, choice) in self.vcl.backends.iter_mut().zip(&self.choices) {
            backend.probe = match choice {
                ProbeChoice::Default => self.default_probe,
                ProbeChoice::Probe(probe) => Some(*probe),
                ProbeChoice::Nothing => None,
            };
        }
        self.vcl.unused = self.unused();
        self.vcl
    }

    /// The first backend is the default one, unless another one is called `default`.
    fn unused(&self) -> Vec<Problem> {
        let is_unused = |name: &str| name != "default" && !self.mentioned.contains(name.as_bytes());
        let problem = |what: &str, name: &str, place: &Place| Problem {
            file: place.file.clone(),
            line: place.line,
            column: place.column,
            path: String::new(),
            problem: format!("Unused {what} {name}, defined:"),
            mend: "use it or remove it".to_owned(),
        };
        let probes = self.vcl.probes.iter().filter_map(|probe| {
            let name = probe.name.as_deref().filter(|name| is_unused(name))?;
            Some(problem("probe", name, &probe.place))
        });
        let first = usize::from(!self.has_default_backend);
        let backends = self.vcl.backends.iter().skip(first).filter_map(|backend| {
            let name = Some(backend.name.as_str()).filter(|name| is_unused(name))?;
            Some(problem("backend", name, &backend.place))
        });
        let mut unused: Vec<Problem> = probes.chain(backends).collect();
        unused.sort();
        unused
    }
}

impl Named {
    fn noun(self) -> &'static str {
        match self {
            Self::Probe(_) => "probe",
            Self::Backend => "backend",
            Self::Other(noun) => noun,
        }
    }
}
