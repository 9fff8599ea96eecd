//! `[acme]`, `[client]` and `[limits]`: the side of the clients.

use super::fault::Finder;
use super::file::{self, Acme, Time};
use super::files::Files;
use crate::plan::{Listener, Ordered, Plan};
use crate::rates::{Limit, Rate, Source};
use std::time::Instant;
use toml::Spanned;

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

/// Limits of requests. They go on where those of the plan before were.
pub(super) fn limits(
    limits: &file::Limits,
    before: Option<&Plan>,
    now: Instant,
    finder: &mut Finder<'_>,
) -> Vec<Limit> {
    let given = [(&limits.requests, Source::Host), (&limits.requests_of_network, Source::Network)];
    let read = given.into_iter().filter_map(|(rate, source)| {
        let rate = rate.as_ref()?;
        let per_second = finder.positive(Some(&rate.per_second)).unwrap_or(1);
        let burst = rate.burst.as_ref().map_or(Some(per_second), |burst| finder.positive(Some(burst)));
        let rate = Rate { per_second, burst: burst.unwrap_or(1) };
        let before = before.and_then(|plan| plan.limits.iter().find(|limit| limit.source() == source));
        Some(Limit::new(source, rate, before, now))
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
