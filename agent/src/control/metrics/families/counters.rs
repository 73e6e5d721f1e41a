//! What the kernel counts, family by family. A counter that joins the ABI joins the tables here:
//! `tests` hold them against the views.

use crate::control::figures::{BackendFigures, ServiceFigures};
use crate::control::metrics::text::Text;
use crate::control::view::{BackendCountersView, GlobalCountersView, ServiceCountersView};

/// Name (between `sickbay_service_` and `_total`), meaning, counter.
type Row<V> = (&'static str, &'static str, fn(&V) -> u64);

/// Of services.
pub(super) const SERVICE: [Row<ServiceCountersView>; 22] = [
    ("steered_packets", "Packets sent to a backend (observe: that would be).", |it| {
        it.steered_packets
    }),
    ("steered_bytes", "Their bytes, link layer included.", |it| it.steered_bytes),
    ("new_flows", "New flows given a backend.", |it| it.new_flows),
    ("skipped_flows", "New flows whose slot's backend takes none, so another got them.", |it| {
        it.skipped
    }),
    ("fell_back_flows", "Of these, flows for which every backend was looked through.", |it| {
        it.fell_back
    }),
    ("all_sick_open_flows", "New flows given a backend although none takes any.", |it| {
        it.all_sick_open
    }),
    ("all_sick_dropped_flows", "New flows dropped because no backend takes any.", |it| {
        it.all_sick_dropped
    }),
    ("affinity_hits", "Packets that followed an entry of their flow.", |it| it.affinity_hit),
    ("affinity_misses", "Packets of established flows that followed their slot.", |it| {
        it.affinity_miss
    }),
    ("entries_written", "Entries of flows written.", |it| it.entries_written),
    ("entries_refused", "Entries not written, most often for want of budget.", |it| {
        it.entries_refused
    }),
    ("unresolved_packets", "Packets dropped because the next hop is not known.", |it| {
        it.unresolved
    }),
    ("kept_on_sick_packets", "Packets of flows kept on a backend that is sick.", |it| {
        it.kept_on_sick
    }),
    ("backup_flows", "New flows given to the backup pool.", |it| it.backup),
    ("panic_open_flows", "New flows given to any member because too few take flows.", |it| {
        it.panic_open
    }),
    ("stale_open_flows", "New flows given to a backend whose verdict is stale.", |it| {
        it.stale_open
    }),
    ("moved_off_sick_flows", "Established flows that left a sick backend.", |it| it.moved_off_sick),
    ("reset_packets", "Packets answered in a backend's name.", |it| it.reset),
    ("reset_over_budget_packets", "Packets dropped because the budget for answers was spent.", {
        |it| it.reset_over_budget
    }),
    ("entries_promoted", "Entries that became lasting with their flow's second packet.", |it| {
        it.promoted
    }),
    ("fragments", "Later fragments that followed their first.", |it| it.fragments),
    ("icmp_errors", "ICMP errors that followed the flow they tell of.", |it| it.icmp_errors),
];

/// Of backends; `sickbay_backend_` stands before.
pub(super) const BACKEND: [Row<BackendCountersView>; 8] = [
    ("steered_packets", "Packets sent to it (observe: that would be).", |it| it.steered_packets),
    ("steered_bytes", "Their bytes, link layer included.", |it| it.steered_bytes),
    ("new_flows", "New flows given to it.", |it| it.new_flows),
    ("skipped_flows", "New flows of its slots that went elsewhere because it is sick.", |it| {
        it.skipped
    }),
    ("diverted_in_flows", "New flows given to it in place of another.", |it| it.diverted_in),
    ("unresolved_packets", "Packets dropped because its next hop is not known.", |it| {
        it.unresolved
    }),
    ("reset_packets", "Packets of its flows answered in its name because it is sick.", |it| {
        it.reset
    }),
    ("moved_away_flows", "Established flows that left it because it is sick.", |it| it.moved_away),
];

/// Why a packet was not steered, and its counter.
type Reason = (&'static str, fn(&GlobalCountersView) -> u64);

/// Of packets that belong to no service.
pub(super) const UNSERVED: [Reason; 9] = [
    ("not_ip", |it| it.not_ip),
    ("not_tcp_udp", |it| it.not_tcp_udp),
    ("not_service", |it| it.not_service),
    ("not_read", |it| it.not_read),
    ("truncated", |it| it.truncated),
    ("broken_table", |it| it.broken_table),
    ("echo_answered", |it| it.echo_answered),
    ("fragment_unknown", |it| it.fragment_unknown),
    ("icmp_unrelated", |it| it.icmp_unrelated),
];

/// Packets that belong to no service.
pub(super) fn packets(text: &mut Text, counters: Option<GlobalCountersView>) {
    let Some(counters) = counters else { return };
    text.counters(
        "sickbay_unserved_packets_total",
        "Packets that were not steered, by why not; see `sickbay service counters`.",
        UNSERVED.iter().map(|(reason, of)| ([("reason", *reason)], of(&counters))),
    );
    text.counters(
        "sickbay_drop_samples_lost_total",
        "Samples of dropped packets that found no room.",
        [([], counters.drop_records_lost)],
    );
}

/// Services.
pub(super) fn services(text: &mut Text, services: &[ServiceFigures]) {
    for (name, help, of) in SERVICE {
        let samples = services.iter().filter_map(|it| {
            let labels = [("service", it.name.as_str()), ("pool", it.pool.as_str())];
            Some((labels, of(it.counters.as_ref()?)))
        });
        text.counters(&format!("sickbay_service_{name}_total"), help, samples);
    }
}

/// Backends, when they were asked for.
pub(super) fn backends(text: &mut Text, backends: &[BackendFigures]) {
    for (name, help, of) in BACKEND {
        let samples = backends.iter().filter_map(|it| {
            let labels = [("pool", it.pool.as_str()), ("backend", it.name.as_str())];
            Some((labels, of(it.counters.as_ref()?)))
        });
        text.counters(&format!("sickbay_backend_{name}_total"), help, samples);
    }
}
