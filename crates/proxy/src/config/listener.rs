//! `[acme]`, `[client]` and `[limits]`: the side of the clients.

use super::fault::Finder;
use super::file::{self, Acme, Time};
use super::files::Files;
use crate::plan::{Listener, Ordered, Plan};
use crate::rates::{Cap, Limit, Rate, Source};
use std::time::Instant;
use tautline::Address;
use toml::Spanned;

/// Checks the form of an address to listen at. Names are resolved by the one who listens.
pub(super) fn form(text: &str) -> Result<(), String> {
    if text.starts_with("unix:") {
        return text.parse::<Address>().map(drop);
    }
    let Some((_, port)) = text.rsplit_once(':') else {
        return Err(format!("{text:?} has no port: write IP:PORT, NAME:PORT, :PORT or unix:PATH"));
    };
    let is_port = !port.starts_with('+') && port.parse::<u16>().is_ok();
    if is_port { Ok(()) } else { Err(format!("{port:?} is no port: write a number up to 65535")) }
}

/// Limits of the listener.
pub(super) fn listener(client: &file::Client, limits: &file::Limits, finder: &mut Finder<'_>) -> Listener {
    let time = |given: Option<Time>| given.map(|Time(time)| time);
    Listener {
        connections: finder.positive(limits.connections.as_ref()),
        handshakes: finder.positive(limits.handshakes.as_ref()),
        head_time: time(client.head_time),
        idle_time: time(client.idle_time),
        send_time: time(client.send_time),
    }
}

/// Sets the limits of requests and of new connections, and the bounds on connections. They go on where those of the plan before
/// were.
pub(super) fn limits(
    limits: &file::Limits,
    plan: &mut Plan,
    before: Option<&Plan>,
    now: Instant,
    finder: &mut Finder<'_>,
) {
    let (requests, handshakes) = before.map_or((&[][..], &[][..]), |before| (&before.limits, &before.handshakes));
    let given = [&limits.requests, &limits.requests_of_network];
    plan.limits = rates(given, requests, now, finder);
    let given = [&limits.handshakes_of_host, &limits.handshakes_of_network];
    plan.handshakes = rates(given, handshakes, now, finder);
    let caps = [
        (&limits.connections_of_host, Source::Host, "connections-of-host"),
        (&limits.connections_of_network, Source::Network, "connections-of-network"),
    ];
    for (most, source, key) in caps {
        let Some(given) = most else { continue };
        let Some(most) = finder.positive(Some(given)) else { continue };
        if limits.connections.as_ref().is_some_and(|all| u64::from(most) > *all.get_ref() as u64) {
            finder.add(given.span(), format!("{key} has no effect above `connections`, those of all: write fewer"));
        }
        let before = before.and_then(|before| before.caps.iter().find(|cap| cap.source() == source));
        plan.caps.push(Cap::new(source, most, before));
    }
}

/// The rates of hosts and of networks.
fn rates(given: [&Option<file::Rate>; 2], before: &[Limit], now: Instant, finder: &mut Finder<'_>) -> Vec<Limit> {
    let read = given.into_iter().zip([Source::Host, Source::Network]).filter_map(|(rate, source)| {
        let rate = rate.as_ref()?;
        let per_second = finder.positive(Some(&rate.per_second)).unwrap_or(1);
        let burst = rate.burst.as_ref().map_or(Some(per_second), |burst| finder.positive(Some(burst)));
        let rate = Rate { per_second, burst: burst.unwrap_or(1) };
        Some(Limit::new(source, rate, before.iter().find(|limit| limit.source() == source), now))
    });
    read.collect()
}

/// The certificates that the proxy orders.
pub(super) fn ordered(files: &Files<'_>, acme: Spanned<Acme>, plan: &Plan, finder: &mut Finder<'_>) -> Option<Ordered> {
    let span = acme.span();
    let acme = acme.into_inner();
    if plan.plain || !plan.certificates.is_empty() {
        finder.add(span, "[acme] orders the certificate: leave it out, or `certificates` and `plain`");
    }
    if acme.names.get_ref().is_empty() {
        finder.add(acme.names.span(), "a certificate has a name: write names = [\"app.example\"]");
        return None;
    }
    let path = |path: std::path::PathBuf| files.path(&path);
    Some(Ordered {
        names: acme.names.into_inner(),
        directory: acme.directory,
        contacts: acme.contacts,
        folder: acme.folder.map(path),
        ca: acme.ca.map(path),
        eab: acme.eab.map(path),
        profile: acme.profile,
        must_staple: acme.must_staple,
        http: acme.http,
    })
}
