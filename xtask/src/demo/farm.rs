//! `cargo xtask demo --farm N`: the agent on a synthetic farm whose backends change their ways while
//! it runs, what it saw of that, and how soon.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sickbay_lab::agent::{Agent, PIN_DIRECTORY, RUN_DIRECTORY};
use sickbay_lab::clock::wait_until;
use sickbay_lab::farm::Farm;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::network::Family;
use sickbay_shared::farm::{Behaviour, Shares};

/// Backends of one pool at most.
pub(super) const BACKENDS_MAX: u32 = 65_536;
/// Probes per second at most, so that a busy machine keeps up.
const RATE_MAX: u32 = 10_000;
/// Below the interval: a slot that comes while its probe is in flight is skipped.
const TIMEOUT_MS: u32 = 800;
/// Bad results in a row after which a healthy backend is condemned, and good ones that acquit it:
/// with 4 of 4 good two bad ones leave 2, which is below 3.
const FAILURES_NEEDED: u32 = 2;
const SUCCESSES_NEEDED: u32 = 3;
/// 250 ms: within the timeout.
const LATE_TICKS: u32 = 238;

/// What the farm turns to, one after the other.
fn chapters() -> [(&'static str, Shares); 4] {
    let some = Shares { late_ticks: LATE_TICKS, seed: 1, ..Shares::GOOD };
    [
        (
            "10 % refuse, 5 % fall silent, 5 % answer 500",
            Shares { refuse: 100, black_hole: 50, error: 50, ..some },
        ),
        (
            "these recover; of the others 10 % drip, and 10 % answer late, but in time",
            Shares { drip: 100, late: 100, seed: 2, ..some },
        ),
        ("half of all refuse", Shares { refuse: 500, seed: 3, ..some }),
        ("all recover", Shares::GOOD),
    ]
}

/// One change of the farm, and when the agent had seen the last of it.
struct Seen {
    what: &'static str,
    sick: u32,
    took: Duration,
    /// Backends whose state is not what their behaviour asks for.
    wrong: u32,
}

/// Plays it.
///
/// # Errors
/// When a part does not do what it should; also when the agent does not come to see what is.
pub(super) fn play(count: u32, as_json: bool) -> Result<()> {
    ensure!((2..=BACKENDS_MAX).contains(&count), "--farm takes 2 to {BACKENDS_MAX} backends");
    let home = Namespace::new("home")?;
    let mut farm = Farm::new(&home)?;
    let interval_ms = (count * 1_000).div_ceil(RATE_MAX).max(1_000);
    let bound_ms = FAILURES_NEEDED.max(SUCCESSES_NEEDED) * interval_ms + TIMEOUT_MS;
    println!(
        "\nA farm of {count} backends in one XDP program; sickbay probes each every {interval_ms} \
         ms: 3 good of the last 4 are healthy."
    );
    let start = Instant::now();
    let agent = Agent::start(&home, "farm", &configuration(count, interval_ms))?;
    println!("{:>8.2} s  every backend has its first verdict", start.elapsed().as_secs_f64());
    let patience = Duration::from_millis(u64::from(3 * bound_ms));
    wait_for_healthy(&agent, count, patience)?;
    let mut all = Vec::new();
    for (what, shares) in chapters() {
        let switched = Instant::now();
        farm.set(shares)?;
        let healthy = (0..count).filter(|index| is_good(&farm, *index)).count() as u32;
        wait_for_healthy(&agent, healthy, patience).with_context(|| format!("after: {what}"))?;
        let took = switched.elapsed();
        let seen = Seen { what, sick: count - healthy, took, wrong: wrong(&agent, &farm)? };
        println!(
            "{:>8.2} s  {what}: {} sick, {} of them or of the others wrongly judged",
            took.as_secs_f64(),
            seen.sick,
            seen.wrong
        );
        all.push(seen);
    }
    println!(
        "promised: within {:.2} s of each change, and the asking\n",
        f64::from(bound_ms) / 1e3
    );
    let requests = farm.counts()?.requests;
    println!("the farm had {requests} requests");
    agent.stop()?;
    if as_json {
        let list: Vec<Value> = all.iter().map(Seen::json).collect();
        let facts = json!({
            "backends": count, "interval_ms": interval_ms, "bound_ms": bound_ms,
            "requests": requests, "changes": list,
        });
        println!("{facts}");
    }
    let wrong: u32 = all.iter().map(|seen| seen.wrong).sum();
    ensure!(wrong == 0, "{wrong} backends were judged wrongly");
    Ok(())
}

impl Seen {
    fn json(&self) -> Value {
        json!({
            "what": self.what, "sick": self.sick, "wrong": self.wrong,
            "seen_after_ms": self.took.as_millis() as u64,
        })
    }
}

fn is_good(farm: &Farm, index: u32) -> bool {
    let behaviour = farm.behaviour(Farm::address(Family::V4, index).ip());
    matches!(behaviour, Behaviour::Good | Behaviour::Late)
}

fn wait_for_healthy(agent: &Agent, count: u32, patience: Duration) -> Result<()> {
    let mut healthy = Value::Null;
    wait_until(&format!("{count} backends are healthy"), patience, || {
        let status = agent.ask_json(&["status"]).ok()?;
        healthy = status["healthy_count"].clone();
        (healthy == count).then_some(())
    })
    .with_context(|| format!("{healthy} are healthy at last"))
}

/// How many backends are not what they are.
fn wrong(agent: &Agent, farm: &Farm) -> Result<u32> {
    let listed = agent.ask_json(&["backend", "list"])?;
    let backends = listed.as_array().context("a list of backends")?;
    let mut wrong = 0;
    for backend in backends {
        let address: std::net::SocketAddr =
            backend["address"].as_str().context("an address")?.parse()?;
        let good = matches!(farm.behaviour(address.ip()), Behaviour::Good | Behaviour::Late);
        wrong += u32::from(backend["takes_new"] != good);
    }
    Ok(wrong)
}

fn configuration(count: u32, interval_ms: u32) -> String {
    let (first, last) = (Farm::address(Family::V4, 0), Farm::address(Family::V4, count - 1));
    format!(
        "[agent]
instance = \"farm\"
pin_directory = \"{PIN_DIRECTORY}\"
run_directory = \"{RUN_DIRECTORY}\"
in_flight = 4096

[probe.web]
url = \"/health\"
interval = \"{interval_ms}ms\"
timeout = \"{TIMEOUT_MS}ms\"
window = 4
threshold = 3

[pool.farm]
probe = \"web\"
backends_range = \"{}-{last}\"
",
        first.ip()
    )
}
