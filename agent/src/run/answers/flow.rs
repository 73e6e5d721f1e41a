//! What would become of a flow's packet: asked of the kernel's own program, put into names.

use sickbay_shared::abi::{
    BIT_ALLOWED, BIT_SERVES_OLD, BIT_TAKES_NEW, BackendRef, Explanation, Facts, NEXT_HOP_VALID,
    POOL_PANICS, SERVICE_ECHO, VERDICT_DROPPED, VERDICT_NOT_SERVICE, VERDICT_STEERED, Verdict,
};
use sickbay_shared::steer::{Entry, Path, Reason};

use std::sync::PoisonError;

use super::Answers;
use crate::control::host::ControlError;
use crate::control::view::{
    FlowBackendView, FlowEntryView, FlowServiceView, FlowSlotView, FlowView, NOBODY,
};
use crate::flow::FlowQuestion;
use crate::kernel::Explainer;

impl Answers {
    /// What would become of the packet now.
    pub(in crate::run) fn explain(
        &self,
        question: &FlowQuestion,
    ) -> Result<FlowView, ControlError> {
        let failed =
            |error: &dyn std::error::Error| ControlError::Failed { what: error.to_string() };
        let frame = question.frame().map_err(|error| failed(&error))?;
        let mut explainer = self.explainer.lock().unwrap_or_else(PoisonError::into_inner);
        if explainer.is_none() {
            let loaded = Explainer::load(&self.object, &self.parts.fleet().pin_directory);
            *explainer = Some(loaded.map_err(|error| failed(&error))?);
        }
        let explained = explainer.as_mut().map(|explainer| explainer.explain(&frame));
        let explanation =
            explained.expect("it was loaded just now").map_err(|error| failed(&error))?;
        Ok(self.flow_view(&explanation))
    }

    fn flow_view(&self, Explanation { facts, verdict }: &Explanation) -> FlowView {
        let fleet = self.parts.fleet();
        let service = fleet.services.get(facts.service as usize);
        let mut view = outcome(facts, verdict);
        view.observe = verdict.observe != 0;
        let Some(service) = service else {
            return view;
        };
        let pool_name = |pool: usize| fleet.pools[pool].name.clone();
        let count = |word: u64| word & u64::from(u32::MAX);
        view.service = Some(FlowServiceView {
            name: service.name.clone(),
            traffic: service.traffic.to_string(),
            mode: service.mode.word().to_owned(),
            pool: pool_name(service.pool),
            healthy: count(facts.pool_count),
            panics: facts.pool_count & POOL_PANICS != 0,
            backup: service.backup.map(|backup| pool_name(backup.pool)),
            backup_healthy: count(facts.backup_pool_count),
        });
        view.slot = Some(FlowSlotView {
            index: facts.slot_index,
            count: service.slot_count,
            backend: self.flow_backend(facts.slot.current(), facts.slot_backend_bits),
            drains_from: facts.slot.drains().then(|| self.name_of(facts.slot.previous())),
            verdict_age_ms: (facts.slot.current().generation() != 0)
                .then(|| facts.at_ns.saturating_sub(facts.sign_of_life_ns) / 1_000_000),
        });
        if facts.entry.backend != BackendRef::NONE {
            view.entry = Some(FlowEntryView {
                backend: self.flow_backend(facts.entry.backend, facts.entry_backend_bits),
                embryonic: facts.entry_is_embryonic != 0,
                age_ms: facts.at_ns.saturating_sub(facts.entry.seen_ns) / 1_000_000,
            });
        }
        view.try_that_finds = Some(facts.try_that_finds).filter(|found| *found != 0);
        if verdict.backend != BackendRef::NONE {
            view.backend = Some(self.flow_backend(verdict.backend, verdict.backend_bits));
        }
        if verdict.outcome == VERDICT_STEERED {
            let is_skipped = verdict.left != BackendRef::NONE && verdict.left != verdict.backend;
            view.skipped = is_skipped.then(|| self.name_of(verdict.left));
            view.next_hop = next_hop(verdict);
            view.interface = interface_name(verdict.interface_index);
        }
        view
    }

    fn flow_backend(&self, backend: BackendRef, bits: u8) -> FlowBackendView {
        FlowBackendView {
            name: self.name_of(backend),
            takes_new: bits & BIT_TAKES_NEW != 0,
            serves_old: bits & BIT_SERVES_OLD != 0,
            allowed: bits & BIT_ALLOWED != 0,
        }
    }

    fn name_of(&self, backend: BackendRef) -> String {
        if backend.generation() == 0 {
            return NOBODY.to_owned();
        }
        let name = self.backend_name(backend.index());
        name.unwrap_or_else(|| format!("index {}", backend.index()))
    }
}

/// What the decision came to, without names.
fn outcome(facts: &Facts, verdict: &Verdict) -> FlowView {
    let view = |outcome: &str, (why, because): (&str, &str)| FlowView {
        outcome: outcome.to_owned(),
        why: why.to_owned(),
        because: because.to_owned(),
        ..FlowView::default()
    };
    match verdict.outcome {
        _ if facts.service == SERVICE_ECHO => {
            view("echo", ("", "echo requests to this address are answered"))
        }
        VERDICT_NOT_SERVICE => view("passed", ("", "no service takes it")),
        VERDICT_DROPPED => match Reason::ALL.get(usize::from(verdict.why)) {
            Some(reason) => {
                let refused = matches!(reason, Reason::NoneTakesNewRefused | Reason::BackendSick);
                view(if refused { "refused" } else { "dropped" }, reason_words(*reason))
            }
            None => view("dropped", ("unknown", "for a reason that this version does not know")),
        },
        VERDICT_STEERED => {
            let path = Path::ALL.get(usize::from(verdict.why)).copied();
            let words =
                path.map_or(("unknown", "in a way that this version does not know"), path_words);
            let because = match verdict.kept_on_sick {
                0 => words.1.to_owned(),
                _ => format!("{}; it is sick, and on_sick keeps its flows", words.1),
            };
            let entry = Entry::ALL.get(usize::from(verdict.entry)).copied().map(entry_word);
            let entry_change = entry.unwrap_or_default().to_owned();
            FlowView { because, entry_change, ..view("steered", words) }
        }
        _ => view("unread", ("", "this version does not read through such packets: it is passed")),
    }
}

const fn reason_words(reason: Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::BrokenTable => {
            ("broken_table", "the service has no usable slot, pool or backend record: a bug")
        }
        Reason::NoneTakesNew => ("none_takes_new", "no backend takes new flows"),
        Reason::NoneTakesNewRefused => {
            ("none_takes_new_refused", "no backend takes new flows, and all_sick is reset")
        }
        Reason::BackendSick => ("backend_sick", "its backend is sick, and on_sick is reset"),
        Reason::ReplyOverBudget => {
            ("reply_over_budget", "an answer is due, and the budget for them is spent")
        }
    }
}

const fn path_words(path: Path) -> (&'static str, &'static str) {
    match path {
        Path::Current => ("current", "its slot's backend takes new flows"),
        Path::Rehashed => {
            ("rehashed", "its slot's backend takes no new flows, a re-hashed try finds this one")
        }
        Path::Searched => (
            "searched",
            "neither its slot's backend nor a re-hashed try takes new flows: this one was counted \
             off among those that do",
        ),
        Path::Backup => ("backup", "no backend of the pool takes new flows, or it panics"),
        Path::PanicOpen => {
            ("panic_open", "the pool panics: one of all that are allowed, sick or not")
        }
        Path::Open => ("open", "none takes new flows, and all_sick is open: one that is allowed"),
        Path::StaleOpen => {
            ("stale_open", "the verdict against its slot's backend is stale, and stale is open")
        }
        Path::SynAgain => ("syn_again", "the same SYN went there a moment ago"),
        Path::Entry => ("entry", "what is remembered of the flow says so"),
        Path::Slot => ("slot", "an established flow of which nothing is remembered: by its slot"),
        Path::Moved => ("moved", "its backend is sick, and on_sick is rehash"),
        Path::Fragment => ("fragment", "the first fragment of its datagram went there"),
        Path::IcmpError => ("icmp_error", "the flow that it tells of goes there"),
    }
}

const fn entry_word(entry: Entry) -> &'static str {
    match entry {
        Entry::Untouched => "untouched",
        Entry::Written => "written",
        Entry::Refused => "refused",
        Entry::Promoted => "promoted",
        Entry::Deleted => "deleted",
    }
}

fn next_hop(verdict: &Verdict) -> Option<String> {
    let [a, b, c, d, e, f, ..] = verdict.next_hop.to_le_bytes();
    let known = verdict.next_hop & NEXT_HOP_VALID != 0;
    known.then(|| format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
}

/// The interface's name in this network namespace.
fn interface_name(index: u32) -> Option<String> {
    let interfaces = nix::net::if_::if_nameindex().ok()?;
    let found = interfaces.iter().find(|interface| interface.index() == index)?;
    Some(found.name().to_string_lossy().into_owned())
}
