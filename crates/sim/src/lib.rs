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
mod trace;
mod world;

pub use plan::Plant;
pub use world::Outcome;

use plan::{Plan, Tls};
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
    let plan = Plan::new(seed);
    let result = match plan.tls {
        Tls::Plain => simulate(plan, "ws", (seed, plant, prints), |_| Ok(plain::Engine)),
        Tls::Fused => {
            simulate(plan, "wss", (seed, plant, prints), |server| configured(server, rustls::fused::Engine::new))
        }
        Tls::Rustls => simulate(plan, "wss", (seed, plant, prints), |server| configured(server, rustls::Engine::new)),
    };
    result.unwrap_or_else(|error| Outcome { findings: vec![error], ..Outcome::default() })
}

fn simulate<E: Engine>(
    plan: Plan,
    scheme: &str,
    (seed, plant, prints): (u64, Option<Plant>, bool),
    engine: impl Fn(bool) -> Result<E, Error>,
) -> Result<Outcome, String> {
    let target = Target::new(&format!("{scheme}://localhost/")).map_err(|error| error.to_string())?;
    let (server, client) = (engine(true), engine(false));
    let (server, client) = (server.map_err(|error| error.to_string())?, client.map_err(|error| error.to_string())?);
    let world =
        World::new(plan, (seed, prints), target, |is_server| if is_server { server.clone() } else { client.clone() });
    let world = world.map_err(|error| error.to_string())?;
    world.net.borrow_mut().plant = plant;
    world.schedule_calm();
    Ok(world.run())
}

/// The authority's certificate, and the configuration of all servers. Ed25519 signatures have one length, those of ECDSA
/// differ by some bytes: a seed would not always give the same trace.
static SERVER: LazyLock<Result<(String, ServerConfig), String>> = LazyLock::new(|| {
    let authority = Authority::new("Simulation").map_err(|error| error.to_string())?;
    let leaf = Leaf::new(&["localhost"]).with_key(KeyKind::Ed25519);
    let certificate = authority.issue(&leaf).map_err(|error| error.to_string())?;
    Ok((authority.certificate().into(), ServerConfig::new([certificate])))
});

/// Makes the engine of a server or of a client.
fn configured<E>(
    server: bool,
    make: impl Fn(Option<&ServerConfig>, Option<&ClientConfig>) -> Result<E, Error>,
) -> Result<E, Error> {
    let (roots, config) = SERVER.as_ref().map_err(|error| Error::Config(error.clone()))?;
    if server {
        return make(Some(config), None);
    }
    let roots = Roots::Pem(roots.as_bytes().to_vec());
    let client = ClientConfig::default().with_roots(roots).with_key_exchange(KeyExchange::Classical);
    make(None, Some(&client))
}
