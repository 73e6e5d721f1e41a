use super::{Screen, StandingView, date, health_word, is_on, table, varnishadm};
use crate::control::view::{Admin, BackendCountersView, BackendView, ProbeState, RuleView};

fn okclose() -> BackendView {
    let nineteen = 0x7_ffff;
    BackendView {
        name: "boot.okclose".to_owned(),
        pool: "boot".to_owned(),
        address: "127.0.0.1:8080".to_owned(),
        weight: 1,
        index: 0,
        admin: Admin::Auto,
        standing: StandingView::Member,
        standing_until_unix_ms: None,
        health_said: None,
        drain_said: None,
        state: ProbeState::Healthy,
        takes_new: true,
        good: 4,
        rule: Some(RuleView::Window { threshold: 3, window: 4 }),
        registers: [nineteen, 0, 0, 0, nineteen, 0, nineteen, 0x1f_ffff].into(),
        average_s: 0.000_627,
        last_s: 0.000_359,
        // 2026-11-29T17:30:28Z, by `date -u -d @1795973428`.
        last_change_unix_ms: Some(1_795_973_428_000),
        last_change_ns: 1_000_000_000,
        cause: String::new(),
        origin: "configuration".to_owned(),
        counters: None,
    }
}

/// What varnishadm of Varnish 7.1.1 printed for this backend.
const VARNISH: &str = "\
boot.okclose   probe    4/4      healthy    Sun, 29 Nov 2026 17:30:28 GMT
 Current states  good:  4 threshold:  3 window:  4
  Average response time of good probes: 0.000627
  Oldest ================================================== Newest
  ---------------------------------------------4444444444444444444 Good IPv4
  ---------------------------------------------XXXXXXXXXXXXXXXXXXX Good Xmit
  ---------------------------------------------RRRRRRRRRRRRRRRRRRR Good Recv
  -------------------------------------------HHHHHHHHHHHHHHHHHHHHH Happy
";

#[test]
fn listing_with_probes_reads_as_varnishadms() {
    let text = table(&[okclose()], true).render(Screen::default());
    let (titles, rest) = text.split_once('\n').expect("titles");
    assert_eq!(
        titles.split_whitespace().collect::<Vec<_>>().join(" "),
        "Backend name Admin Probe Health Last change Last result"
    );
    assert_eq!(rest, VARNISH);
}

#[test]
fn forced_health_is_shown_apart_from_the_probes() {
    let forced = BackendView { admin: Admin::Sick, takes_new: false, ..okclose() };
    let text = table(&[forced], false).render(Screen::default());
    let row = text.lines().nth(1).expect("a row");
    assert_eq!(row, "boot.okclose   sick     4/4      healthy    Sun, 29 Nov 2026 17:30:28 GMT");
}

/// Of a backend without a probe, as varnishadm of Varnish 7.1.1 has it.
#[test]
fn backend_without_a_probe_is_healthy_and_has_no_results() {
    let unprobed = BackendView {
        rule: None,
        good: 0,
        registers: [0, 0, 0, 0, 0, 0, 0, u64::MAX].into(),
        average_s: 0.0,
        ..okclose()
    };
    let row = |view: &BackendView| {
        let text = table(std::slice::from_ref(view), true).render(Screen::default());
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        row(&unprobed),
        ["boot.okclose   healthy  0/0      healthy    Sun, 29 Nov 2026 17:30:28 GMT"]
    );
    let forced = BackendView { admin: Admin::Sick, ..unprobed.clone() };
    assert_eq!(
        row(&forced),
        ["boot.okclose   sick     0/0      healthy    Sun, 29 Nov 2026 17:30:28 GMT"]
    );
    let answer = varnishadm::answer(&[unprobed], true, &varnishadm::words(true, None), 0);
    assert_eq!(
        answer[3].to_string(),
        concat!(
            r#"{"boot.okclose":{"type":"backend","admin_health":"healthy","#,
            r#""probe_message":[0,0,"healthy"],"probe_details":{},"#,
            r#""last_change":1795973428.0}}"#
        )
    );
}

#[test]
fn one_that_is_drained_says_until_when_and_weights_show_when_they_differ() {
    let drained = BackendView {
        standing: StandingView::Draining,
        // 2026-11-29T17:30:28Z, by `date -u -d @1795973428`.
        standing_until_unix_ms: Some(1_795_973_428_000),
        weight: 3,
        ..okclose()
    };
    let leaving = BackendView { standing: StandingView::Leaving, ..okclose() };
    let text = table(&[drained, leaving], false).render(Screen::default());
    let rows: Vec<String> =
        text.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(rows[0], "Backend name Admin Probe Health Last change Weight Last result");
    assert_eq!(
        rows[1],
        "boot.okclose draining (until Sun, 29 Nov 2026 17:30:28 GMT) 4/4 healthy Sun, 29 Nov \
         2026 17:30:28 GMT 3"
    );
    assert_eq!(rows[2], "boot.okclose leaving 4/4 healthy Sun, 29 Nov 2026 17:30:28 GMT 1");
}

#[test]
fn steered_backends_show_the_kernels_counters() {
    let counters = BackendCountersView { new_flows: 12, skipped: 7, ..Default::default() };
    let steered = BackendView {
        counters: Some(counters),
        state: ProbeState::Sick,
        rule: Some(RuleView::Consecutive { fall: 5, rise: 2 }),
        good: 0,
        last_change_unix_ms: None,
        last_change_ns: 0,
        cause: "Open error 111 (Connection refused)".to_owned(),
        ..okclose()
    };
    let text = table(&[steered], false).render(Screen::default());
    assert_eq!(
        text,
        "\
Backend name   Admin    Probe    Health     Last change  New flows  Skipped  Last result
boot.okclose   probe    0/5      sick       -                   12        7  Open error 111 \
         (Connection refused)
"
    );
}

#[test]
fn varnish_json_is_varnishadms() {
    let words = varnishadm::words(true, Some("boot.*"));
    let answer = varnishadm::answer(&[okclose()], true, &words, 1_795_973_430_250);
    assert_eq!(
        answer.to_string(),
        concat!(
            r#"[3,["backend.list","-j","-p","boot.*"],1795973430.25,{"boot.okclose":"#,
            r#"{"type":"backend","admin_health":"probe","probe_message":[4,4,"healthy"],"#,
            r#""probe_details":{"bits_4":524287,"bits_6":0,"bits_U":0,"bits_x":0,"#,
            r#""bits_X":524287,"bits_r":0,"bits_R":524287,"bits_H":2097151,"good":4,"#,
            r#""threshold":3,"window":4},"last_change":1795973428.0}}]"#
        )
    );
    let sick = BackendView {
        admin: Admin::Sick,
        state: ProbeState::Warming,
        last_change_unix_ms: None,
        ..okclose()
    };
    let answer = varnishadm::answer(&[sick], false, &varnishadm::words(false, None), 0);
    assert_eq!(
        answer.to_string(),
        concat!(
            r#"[3,["backend.list","-j"],0.0,{"boot.okclose":{"type":"backend","#,
            r#""admin_health":"sick","probe_message":[4,4,"sick"],"last_change":0.0}}]"#
        )
    );
}

#[test]
fn health_words_are_varnishadms_in_any_case() {
    for (text, admin) in [("auto", Admin::Auto), ("SICK", Admin::Sick), ("Healthy", Admin::Healthy)]
    {
        assert_eq!(health_word(text).expect(text).0, admin);
    }
    for text in ["probe", "deleted", "", "sick "] {
        let said = health_word(text).expect_err(text).to_string();
        assert_eq!(said, format!("Invalid state {text}: write auto, healthy or sick"));
    }
}

#[test]
fn flag_that_is_repeated_is_taken_back() {
    assert_eq!([0, 1, 2, 3].map(is_on), [false, true, false, true]);
}

#[test]
fn times_are_rfc_1123() {
    assert_eq!(date(1_795_973_428_999), "Sun, 29 Nov 2026 17:30:28 GMT");
    assert_eq!(date(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
}
