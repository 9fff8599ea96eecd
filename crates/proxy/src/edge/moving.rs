//! Tunnels and pairs whose messages pass that move to another process: an upgrade of the proxy cuts none.
//!
//! Both ends move together. Each names its route, backend and server, which are found again in the plan of the new process. There
//! the client's end has the server's place, and both are counted. A backend that is gone there does not end the tunnel: it lives on
//! by the deadline that it had. A pair has the rules of its route there, and keeps its longest message. Its rates begin anew.

use super::side::{Arriving, ArrivingMessages, Side};
use crate::plan::{Backend, Plan};
use crate::tally::EndMeter;
use std::sync::Arc;
use std::time::Duration;
use tautline::layers::buf::fields::{put, take, take_array, take_u64};

/// Version of the format, its first byte. A connection without a part in anything saves nothing.
const VERSION: u8 = 2;

/// The first flag: the end has the server's place.
const LEASE: u8 = 1;
/// The flag of a client's end.
const CLIENT: u8 = 2;
/// The flag of a pair whose messages pass.
const MESSAGES: u8 = 4;

/// Appends the part of a connection, if it can move: the end of a tunnel or pair, or of a client between two requests.
pub(super) fn save(side: &Side, out: &mut Vec<u8>) -> bool {
    match side {
        Side::Nothing => true,
        Side::Tunnel { lease, backend, meter, .. } => {
            save_end(if lease.is_some() { LEASE } else { 0 }, backend, meter, out);
            true
        }
        Side::Pair(end) => {
            let lease = if end.has_lease() { LEASE } else { 0 };
            save_end(MESSAGES | lease, &end.rules.backend, &end.meter, out);
            out.extend(u64::try_from(end.rules.max_size).unwrap_or(u64::MAX).to_be_bytes());
            let source = end.source().map(|source| source.to_string()).unwrap_or_default();
            put(source.as_bytes(), out);
            true
        }
        Side::Full | Side::Client(_) | Side::Server(_) | Side::Arriving(_) => false,
    }
}

/// Appends the part that ends of tunnels and of pairs have.
fn save_end(flags: u8, backend: &Backend, meter: &EndMeter, out: &mut Vec<u8>) {
    out.extend([VERSION, flags | if meter.is_client() { CLIENT } else { 0 }]);
    let tunnel = u64::try_from(backend.times.tunnel.as_millis()).unwrap_or(u64::MAX);
    out.extend(tunnel.to_be_bytes());
    let (route, server) = meter.names();
    [&backend.name, server, route].into_iter().for_each(|name| put(name.as_bytes(), out));
}

/// Reads what [`save`] wrote. `None` for other bytes, and for those of an unknown version.
pub(super) fn restore(mut saved: &[u8], plan: Arc<Plan>) -> Option<Side> {
    if saved.is_empty() {
        return Some(Side::Nothing);
    }
    let rest = &mut saved;
    let [version, flags] = *take_array(rest)?;
    if version != VERSION {
        log::error!("a tunnel stays with the old process: it has format {version}, and this build reads {VERSION}");
        return None;
    }
    let tunnel = Duration::from_millis(take_u64(rest)?);
    let [name, server, route] = [text(rest)?, text(rest)?, text(rest)?];
    let messages = if flags & MESSAGES != 0 { Some(messages(rest)?) } else { None };
    if flags > LEASE | CLIENT | MESSAGES || !rest.is_empty() {
        return None;
    }
    let backend = plan.backends.iter().find(|backend| backend.name == name).cloned();
    let backend = backend.unwrap_or_else(|| Arc::new(Backend::gone(name, tunnel)));
    let lease = if flags & LEASE != 0 { backend.group.lease_again(server) } else { None };
    let (route, server, is_client) = (route.into(), server.into(), flags & CLIENT != 0);
    Some(Side::Arriving(Box::new(Arriving { plan, lease, backend, route, server, is_client, messages })))
}

fn messages(rest: &mut &[u8]) -> Option<ArrivingMessages> {
    let max_size = usize::try_from(take_u64(rest)?).ok()?;
    let source = match text(rest)? {
        "" => None,
        source => Some(source.parse().ok()?),
    };
    Some(ArrivingMessages { max_size, source })
}

fn text<'s>(rest: &mut &'s [u8]) -> Option<&'s str> {
    str::from_utf8(take(rest)?).ok()
}

#[cfg(test)]
mod tests {
    use super::{restore, save};
    use crate::config;
    use crate::edge::Side;
    use crate::messages::{End, Rules};
    use crate::plan::Plan;
    use crate::tally::{EndMeter, Figures, Flow};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tautline::ConnId;

    fn plan(name: &str, lines: &str) -> Arc<Plan> {
        let text = format!("[[route]]\nname = \"main\"\nto = {name:?}\n[backend.{name}]\n{lines}\n");
        Arc::new(config::parse(Path::new("t"), &text, None, Instant::now()).unwrap())
    }

    fn nobody() -> ConnId {
        "0.0.0".parse().unwrap()
    }

    /// The end of a tunnel, as `plan` has it.
    fn tunnel(plan: &Plan, is_client: bool) -> Side {
        let backend = plan.backends[0].clone();
        let server = backend.group.servers()[0].name.clone();
        let flow = Flow { route: plan.tally_of("main", 0), server: backend.group.tally_of(&server, 0) };
        let lease = if is_client { backend.group.lease_again(&server) } else { None };
        Side::Tunnel { partner: nobody(), heard: 0, lease, backend, meter: EndMeter::new(flow, is_client) }
    }

    fn saved(side: &Side) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(save(side, &mut out));
        out
    }

    fn restored(bytes: &[u8], plan: &Arc<Plan>) -> Side {
        match restore(bytes, plan.clone()) {
            Some(Side::Arriving(end)) => end.with(nobody()),
            other => panic!("{other:?} is no end of a tunnel"),
        }
    }

    fn pass(side: &Side, len: usize) {
        let Side::Tunnel { meter, .. } = side else { panic!("{side:?}") };
        meter.passed(len);
    }

    const SERVER: &str = "servers = [\"http://127.0.0.1:1\"]\nmax-connections = 1";

    #[test]
    fn a_tunnel_is_counted_at_its_server_in_the_new_process() {
        let (old, new) = (plan("app", SERVER), plan("app", SERVER));
        let bytes = saved(&tunnel(&old, true));
        let side = restored(&bytes, &new);
        let again = restore(&bytes, new.clone()).unwrap();
        let server = &new.backends[0].group.servers()[0];
        assert_eq!(server.connections(), 2, "no bound ends a tunnel that is there");
        drop(again);
        assert_eq!((server.connections(), saved(&side)), (1, bytes));
        drop(side);
        assert_eq!(server.connections(), 0);
    }

    #[test]
    fn both_ends_are_counted_by_route_and_server_in_the_new_process() {
        let (old, new) = (plan("app", SERVER), plan("app", SERVER));
        let ends = [true, false].map(|is_client| restored(&saved(&tunnel(&old, is_client)), &new));
        pass(&ends[0], 3);
        pass(&ends[1], 50);
        let figures = || Figures::of(&new, Instant::now());
        let now = figures();
        let (route, server) = (&now.routes[1], &now.backends[0].servers[0]);
        assert_eq!((route.name.as_str(), route.received, route.sent), ("main", 3, 50));
        assert_eq!((server.sent, server.received, server.tunnels, server.requests, server.idle), (3, 50, 1, 0, 0));
        drop(ends);
        assert_eq!((figures().backends[0].servers[0].tunnels, figures().routes[1].received), (0, 3));
    }

    #[test]
    fn a_pair_has_the_rules_of_its_route_and_its_own_longest_message() {
        let of = |messages: &str| {
            let text = format!("[[route]]\nname = \"main\"\nto = \"app\"\n{messages}\n[backend.app]\n{SERVER}\n");
            Arc::new(config::parse(Path::new("t"), &text, None, Instant::now()).unwrap())
        };
        let old = of("messages = { max-size = \"2KiB\", rate = 5 }");
        let group = &old.backends[0].group;
        let flow = || Flow { route: old.tally_of("main", 0), server: group.tally_of("http://127.0.0.1:1", 0) };
        let rules =
            Rules { messages: old.messages_of("main").unwrap(), max_size: 2048, backend: old.backends[0].clone() };
        let lease = group.lease_again("http://127.0.0.1:1");
        let source = "192.0.2.7".parse().ok();
        let ends = [
            End::of_client(rules.clone(), nobody(), source, lease, EndMeter::new(flow(), true)),
            End::of_server(rules, nobody(), EndMeter::new(flow(), false)),
        ]
        .map(|end| saved(&Side::Pair(end)));
        let same = of("messages = { max-size = \"1MiB\", slow = \"disconnect\", rate = 9 }");
        for new in [same.clone(), of("")] {
            for (bytes, is_client) in ends.iter().zip([true, false]) {
                let Some(Side::Arriving(end)) = restore(bytes, new.clone()) else { panic!("it does not arrive") };
                assert_eq!(end.messages.as_ref().map(|messages| messages.max_size), Some(2048));
                let Side::Pair(end) = end.with(nobody()) else { panic!("no pair") };
                assert_eq!((end.rules.max_size, end.has_lease(), end.meter.is_client()), (2048, is_client, is_client));
                assert_eq!(end.source(), source.filter(|_| is_client));
                let of_route = new.messages_of("main");
                let has_its = of_route.is_some_and(|messages| Arc::ptr_eq(&messages, &end.rules.messages));
                assert_eq!(has_its, Arc::ptr_eq(&new, &same));
                assert_eq!(saved(&Side::Pair(end))[1..2], bytes[1..2]);
            }
        }
    }

    #[test]
    fn a_tunnel_outlives_its_backend_and_its_server() {
        let old = plan("app", &format!("{SERVER}\ntunnel-time = \"7s\""));
        let bytes = saved(&tunnel(&old, true));
        for new in [plan("other", SERVER), plan("app", "servers = [\"http://127.0.0.1:2\"]\ntunnel-time = \"9s\"")] {
            let side = restored(&bytes, &new);
            let Side::Tunnel { lease: None, backend, .. } = &side else { panic!("a tunnel without a lease") };
            let expected = if new.backends[0].name == "app" { 9 } else { 7 };
            assert_eq!((&*backend.name, backend.times.tunnel), ("app", Duration::from_secs(expected)));
            assert_eq!(new.backends[0].group.servers()[0].connections(), 0);
            // Its names stay for the next process, which may have them again.
            assert_eq!(saved(&side)[10..], bytes[10..]);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let plan = plan("app", SERVER);
        let bytes = saved(&tunnel(&plan, true));
        assert!(matches!(restore(&[], plan.clone()), Some(Side::Nothing)));
        for len in 1..bytes.len() {
            assert!(restore(&bytes[..len], plan.clone()).is_none(), "{len}");
        }
        let other = |at: usize, byte: u8| {
            let mut changed = bytes.clone();
            changed[at] = byte;
            changed
        };
        for bytes in [other(0, 1), other(1, 8), other(1, 4), [&bytes[..], &[0]].concat()] {
            assert!(restore(&bytes, plan.clone()).is_none());
        }
        assert!(!save(&Side::Full, &mut Vec::new()));
        assert_eq!(plan.backends[0].group.servers()[0].connections(), 0);
    }
}
