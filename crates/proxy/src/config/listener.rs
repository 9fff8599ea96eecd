//! `[acme]`, `[client]` and `[limits]`: the side of the clients.

use super::Reader;
use super::fault::Finder;
use super::file::{self, Acme, Time};
use super::positive;
use crate::plan::{Listener, Ordered, Plan};
use crate::rates::{Limit, Rate, Source};
use toml::Spanned;

/// Reads what the file says of the clients.
pub(super) fn add(
    reader: &Reader<'_>,
    acme: Option<Spanned<Acme>>,
    (client, limits): (&file::Client, &file::Limits),
    plan: &mut Plan,
    finder: &mut Finder<'_>,
) {
    plan.acme = acme.and_then(|acme| ordered(reader, acme, plan, finder));
    let time = |given: Option<Time>| given.map(|Time(time)| time);
    plan.listener = Listener {
        connections: positive(limits.connections.as_ref(), finder),
        handshakes: positive(limits.handshakes.as_ref(), finder),
        head_time: time(client.head_time),
        idle_time: time(client.idle_time),
        send_time: time(client.send_time),
    };
    let given = [(&limits.requests, Source::Host), (&limits.requests_of_network, Source::Network)];
    for (rate, source) in given {
        let Some(rate) = rate else { continue };
        let per_second = positive(Some(&rate.per_second), finder).unwrap_or(1);
        let burst = rate.burst.as_ref().map_or(Some(per_second), |burst| positive(Some(burst), finder));
        let rate = Rate { per_second, burst: burst.unwrap_or(1) };
        let before = reader.before.and_then(|plan| plan.limits.iter().find(|limit| limit.source() == source));
        plan.limits.push(Limit::new(source, rate, before, reader.now));
    }
}

fn ordered(reader: &Reader<'_>, acme: Spanned<Acme>, plan: &Plan, finder: &mut Finder<'_>) -> Option<Ordered> {
    let span = acme.span();
    let acme = acme.into_inner();
    if plan.plain || !plan.certificates.is_empty() {
        finder.add(span, "[acme] orders the certificate: leave it out, or `certificates` and `plain`");
    }
    if acme.names.get_ref().is_empty() {
        finder.add(acme.names.span(), "a certificate has a name: write names = [\"app.example\"]");
        return None;
    }
    let path = |path: std::path::PathBuf| reader.files.path(&path);
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
