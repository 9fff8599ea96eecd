//! Tunnels that move to another process: an upgrade of the proxy cuts none.
//!
//! Both ends move together. The client's end names its backend and server, which are found again in the plan of the new process.
//! A backend that is gone there does not end the tunnel: it lives on by the deadline that it had.

use super::side::{Arriving, Side};
use crate::plan::{Backend, Plan};
use std::sync::Arc;
use std::time::Duration;
use tautline::layers::buf::fields::{put, take, take_array, take_u64};

/// Version of the format, its first byte. A connection without a part in anything saves nothing.
const VERSION: u8 = 1;

/// Appends the part of a connection, if it can move: the end of a tunnel, or of a client between two requests.
pub(super) fn save(side: &Side, out: &mut Vec<u8>) -> bool {
    match side {
        Side::Nothing => true,
        Side::Tunnel { lease, backend, .. } => {
            out.extend([VERSION, u8::from(lease.is_some())]);
            let tunnel = u64::try_from(backend.times.tunnel.as_millis()).unwrap_or(u64::MAX);
            out.extend(tunnel.to_be_bytes());
            put(backend.name.as_bytes(), out);
            put(lease.as_ref().map_or("", |lease| lease.server().name()).as_bytes(), out);
            true
        }
        Side::Full | Side::Client(_) | Side::Server(_) | Side::Arriving(_) | Side::Pair(_) => false,
    }
}

/// Reads what [`save`] wrote. `None` for other bytes, and for those of an unknown version.
pub(super) fn restore(mut saved: &[u8], plan: &Plan) -> Option<Side> {
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
    let [name, server] = [str::from_utf8(take(rest)?).ok()?, str::from_utf8(take(rest)?).ok()?];
    if flags > 1 || !rest.is_empty() {
        return None;
    }
    let backend = plan.backends.iter().find(|backend| backend.name == name).cloned();
    let backend = backend.unwrap_or_else(|| Arc::new(Backend::gone(name, tunnel)));
    let lease = if flags == 1 { backend.group.lease_again(server) } else { None };
    Some(Side::Arriving(Arriving { lease, backend }))
}

#[cfg(test)]
mod tests {
    use super::{restore, save};
    use crate::config;
    use crate::edge::Side;
    use crate::plan::Plan;
    use std::path::Path;
    use std::time::{Duration, Instant};
    use tautline::ConnId;

    fn plan(name: &str, lines: &str) -> Plan {
        let text = format!("[[route]]\nto = {name:?}\n[backend.{name}]\n{lines}\n");
        config::parse(Path::new("t"), &text, None, Instant::now()).unwrap()
    }

    fn nobody() -> ConnId {
        "0.0.0".parse().unwrap()
    }

    /// The tunnel of a client, as `plan` has it.
    fn tunnel(plan: &Plan) -> Side {
        let backend = plan.backends[0].clone();
        let server = backend.group.servers()[0].name().to_owned();
        let lease = backend.group.lease_again(&server);
        Side::Tunnel { partner: nobody(), heard: 0, lease, backend, meter: None }
    }

    fn saved(side: &Side) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(save(side, &mut out));
        out
    }

    fn restored(bytes: &[u8], plan: &Plan) -> Side {
        match restore(bytes, plan) {
            Some(Side::Arriving(end)) => end.with(nobody()),
            other => panic!("{other:?} is no end of a tunnel"),
        }
    }

    const SERVER: &str = "servers = [\"http://127.0.0.1:1\"]\nmax-connections = 1";

    #[test]
    fn a_tunnel_is_counted_at_its_server_in_the_new_process() {
        let (old, new) = (plan("app", SERVER), plan("app", SERVER));
        let bytes = saved(&tunnel(&old));
        let side = restored(&bytes, &new);
        let again = restore(&bytes, &new).unwrap();
        let server = &new.backends[0].group.servers()[0];
        assert_eq!(server.connections(), 2, "no bound ends a tunnel that is there");
        drop(again);
        assert_eq!((server.connections(), saved(&side)), (1, bytes));
        drop(side);
        assert_eq!(server.connections(), 0);
    }

    #[test]
    fn a_tunnel_outlives_its_backend_and_its_server() {
        let old = plan("app", &format!("{SERVER}\ntunnel-time = \"7s\""));
        let bytes = saved(&tunnel(&old));
        for new in [plan("other", SERVER), plan("app", "servers = [\"http://127.0.0.1:2\"]\ntunnel-time = \"9s\"")] {
            let Side::Tunnel { lease: None, backend, .. } = restored(&bytes, &new) else {
                panic!("a tunnel without a lease")
            };
            let expected = if new.backends[0].name == "app" { 9 } else { 7 };
            assert_eq!((&*backend.name, backend.times.tunnel), ("app", Duration::from_secs(expected)));
            assert_eq!(new.backends[0].group.servers()[0].connections(), 0);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let plan = plan("app", SERVER);
        let bytes = saved(&tunnel(&plan));
        assert!(matches!(restore(&[], &plan), Some(Side::Nothing)));
        for len in 1..bytes.len() {
            assert!(restore(&bytes[..len], &plan).is_none(), "{len}");
        }
        let other = |at: usize, byte: u8| {
            let mut changed = bytes.clone();
            changed[at] = byte;
            changed
        };
        for bytes in [other(0, 2), other(1, 2), [&bytes[..], &[0]].concat()] {
            assert!(restore(&bytes, &plan).is_none());
        }
        assert!(!save(&Side::Full, &mut Vec::new()));
        assert_eq!(plan.backends[0].group.servers()[0].connections(), 0);
    }
}
