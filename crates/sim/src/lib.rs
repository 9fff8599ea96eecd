//! Servers, clients and their network in one thread, with virtual time: everything that happens follows from a seed.
//!
//! Real loops run over a simulated driver ([`Shard`](tautline_engine::Shard) with any TLS engine). The network delays,
//! stalls, resets, and reorders the events of different connections. Hosts stop for a while, have no descriptors, or no
//! memory. A verifier that shares no code with the loops accounts for every message and every connection.
//!
//! | seconds | in every run |
//! |---|---|
//! | 0 to 33 | actions of applications and of other threads, and faults |
//! | 33 to 45 | nothing new; at 45 everything that was sent on open connections has arrived |
//! | 45 to 60 | loops drain, or clients close; at 60 every connection has ended |
//! | later | the last entries of timers pass; then nothing is held any more |
//!
//! With [proxies](run_proxied) in between, each WebSocket is a pair of connections. The verifier still sees two ends only.
//!
//! ```
//! let outcome = tautline_sim::run(7, None, false);
//! assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
//! assert_eq!(outcome.trace, tautline_sim::run(7, None, false).trace);
//! ```
#![forbid(unsafe_code)]

mod act;
mod app;
mod driver;
mod end_id;
mod host;
mod ledger;
mod letter;
mod network;
mod plan;
mod proxies;
mod trace;
mod world;

pub use plan::Plant;
pub use world::Outcome;

use plan::{Plan, Role, Tls};
use std::sync::LazyLock;
use tautline_engine::Target;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_tls::{ClientConfig, Engine, Error, KeyExchange, Roots, ServerConfig, plain};
use tautline_tls_rustls as rustls;
use world::World;

/// Simulated seconds of a run in which applications do something or connections end.
pub const SECONDS: u64 = 60;

/// Runs one seed, with a planted bug or without. Prints every event if `prints`.
#[must_use]
pub fn run(seed: u64, plant: Option<Plant>, prints: bool) -> Outcome {
    run_plan(Plan::new(seed), (seed, plant, prints))
}

/// Runs one seed with proxies between clients and servers: even seeds join the connections of a pair by bytes, odd ones by
/// messages.
///
/// ```
/// let outcome = tautline_sim::run_proxied(6, None, false);
/// assert!(outcome.findings.is_empty(), "{:?}", outcome.findings);
/// ```
#[must_use]
pub fn run_proxied(seed: u64, plant: Option<Plant>, prints: bool) -> Outcome {
    run_plan(Plan::proxied(seed), (seed, plant, prints))
}

fn run_plan(plan: Plan, run: (u64, Option<Plant>, bool)) -> Outcome {
    let result = match plan.tls {
        Tls::Plain => simulate(plan, "ws", run, |_| Ok(plain::Engine)),
        Tls::Fused => simulate(plan, "wss", run, |role| configured(role, rustls::fused::Engine::new)),
        Tls::Rustls => simulate(plan, "wss", run, |role| configured(role, rustls::Engine::new)),
    };
    result.unwrap_or_else(|error| Outcome { findings: vec![error], ..Outcome::default() })
}

fn simulate<E: Engine>(
    plan: Plan,
    scheme: &str,
    (seed, plant, prints): (u64, Option<Plant>, bool),
    engine: impl Fn(Role) -> Result<E, Error>,
) -> Result<Outcome, String> {
    let target = Target::new(&format!("{scheme}://localhost/")).map_err(|error| error.to_string())?;
    let engine = |role| engine(role).map_err(|error| error.to_string());
    let (server, client) = (engine(Role::Server)?, engine(Role::Client)?);
    let proxy = plan.proxies.map(|_| engine(Role::Proxy)).transpose()?;
    let world = World::new(plan, (seed, prints), target, |role| match (role, &proxy) {
        (Role::Proxy, Some(proxy)) => proxy.clone(),
        (Role::Server | Role::Proxy, _) => server.clone(),
        (Role::Client, _) => client.clone(),
    });
    let world = world.map_err(|error| error.to_string())?;
    world.net.borrow_mut().plant = plant;
    world.schedule_calm();
    Ok(world.run())
}

/// The authority's certificate, and the configuration of all servers. Ed25519 signatures have one length, those of ECDSA
/// differ by some bytes: a seed would not always give the same trace.
static SERVER: LazyLock<Result<(String, ServerConfig), String>> = LazyLock::new(|| {
    let authority = Authority::new("Simulation").map_err(|error| error.to_string())?;
    let leaf = Leaf::new(&["localhost", "10.0.0.1"]).with_key(KeyKind::Ed25519);
    let certificate = authority.issue(&leaf).map_err(|error| error.to_string())?;
    Ok((authority.certificate().into(), ServerConfig::new([certificate])))
});

/// Makes the engine of a host.
fn configured<E>(
    role: Role,
    make: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error>,
) -> Result<E, Error> {
    let (roots, config) = SERVER.as_ref().map_err(|error| Error::Config(error.clone()))?;
    if role == Role::Server {
        return make(Some(config), None);
    }
    let roots = Roots::Pem(roots.as_bytes().to_vec());
    let client = ClientConfig::default().with_roots(roots).with_key_exchange(KeyExchange::Classical);
    make((role == Role::Proxy).then_some(config), Some(&client))
}
