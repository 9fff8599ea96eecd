//! `[backend.NAME]`: a group of servers.

use super::fault::Finder;
use super::file::{self, Text, Time};
use super::nearest::suggestion;
use crate::balance::{Balance, Group, Passive, Server};
use crate::forward::ProxyProtocol;
use crate::plan::{Backend, Check, Endpoint, HashOf, Place, Times, Wait};
use crate::resolved::Resolved;
use crate::resolving::name_of;
use crate::route::{Host, NormalPath};
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tautline::http::HeaderName;
use toml::Spanned;

pub(super) fn backend(
    name: &str,
    backend: Spanned<file::Backend>,
    before: Option<&Backend>,
    now: Instant,
    finder: &mut Finder<'_>,
) -> Backend {
    let span = backend.span();
    let backend = backend.into_inner();
    if backend.servers.is_empty() {
        finder.add(span, format!("backend {name:?} has no server: write servers = [\"http://127.0.0.1:3000\"]"));
    }
    let hash = hash_of(&backend, finder);
    let passive = passive(&backend);
    let most = finder.positive(backend.max_connections.as_ref()).unwrap_or(usize::MAX);
    let wait = wait(&backend, finder);
    let queue = before.map(|before| before.group.queue().clone()).unwrap_or_default();
    let (mut endpoints, mut servers) = (Vec::new(), Vec::<Server>::new());
    let texts: Vec<&str> = backend.servers.iter().map(|text| text.get_ref().as_str()).collect();
    let mut seen = HashSet::new();
    for text in &backend.servers {
        if !seen.insert(text.get_ref()) {
            finder.add(text.span(), format!("{:?} is listed twice: leave one out", text.get_ref()));
        }
        let Some(endpoint) = finder.take(text.span(), endpoint(text.get_ref())) else { continue };
        let mut server = Server::new(endpoints.len(), text.get_ref(), now);
        server.is_drained = backend.drain.iter().any(|drained| drained.get_ref() == text.get_ref());
        (server.max_connections, server.passive, server.queue) = (most, passive, queue.clone());
        servers.push(server);
        endpoints.push(endpoint);
    }
    for drained in backend.drain.iter().filter(|drained| !texts.contains(&drained.get_ref().as_str())) {
        let near = suggestion(drained.get_ref(), texts.iter().copied());
        finder.add(drained.span(), format!("{:?} is none of the servers: {near}", drained.get_ref()));
    }
    let resolved = endpoints.iter().map(|endpoint| resolved(endpoint, before)).collect();
    if let Some(every) = backend.resolve_every.as_ref().filter(|_| endpoints.iter().all(|one| name_of(one).is_none())) {
        finder.add(every.span(), "resolve-every has no effect, since no server has a name: leave it out");
    }
    let balance = if hash.is_some() { Balance::Hash } else { backend.balance };
    let sticky = backend.sticky_cookie.as_ref().and_then(|text| finder.take(text.span(), cookie_name(text.get_ref())));
    let check = backend.check.as_ref().map(|check| self::check(check, &endpoints, finder));
    let proxy_protocol = proxy_protocol(&backend, finder);
    Backend {
        name: name.to_owned(),
        endpoints,
        resolved,
        resolve_every: backend.resolve_every.as_ref().map(|every| every.get_ref().0),
        group: Group::new(balance, Backend::servers_from(servers, before), queue),
        hash,
        sticky,
        times: times(&backend),
        wait,
        proxy_protocol,
        check,
    }
}

/// The header with which connections to the servers begin.
fn proxy_protocol(backend: &file::Backend, finder: &mut Finder<'_>) -> Option<ProxyProtocol> {
    let version = backend.proxy_protocol?;
    if let Some(time) = &backend.idle_time {
        let what =
            "idle-time has no effect with proxy-protocol, whose connections serve one request each: leave it out";
        finder.add(time.span(), what);
    }
    Some(version)
}

/// The addresses that a server's name had before a reload.
fn resolved(endpoint: &Endpoint, before: Option<&Backend>) -> Resolved {
    let known = before.filter(|before| before.resolve_every.is_some()).and_then(|before| {
        let at = before.endpoints.iter().position(|other| other == endpoint)?;
        before.resolved.get(at)
    });
    known.cloned().unwrap_or_default()
}

/// Reads the address of a server.
fn endpoint(text: &str) -> Result<Endpoint, String> {
    let how = || {
        format!(
            "{text:?} is no server: write http://HOST:PORT, https://HOST:PORT or unix:/PATH, without a path behind the port"
        )
    };
    if let Some(path) = text.strip_prefix("unix:") {
        let path = PathBuf::from(path);
        return if path.is_absolute() { Ok(Endpoint { tls: false, place: Place::Unix(path) }) } else { Err(how()) };
    }
    let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err(how()),
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    let host = Host::new(authority).ok_or_else(how)?;
    let host = host.as_str().trim_matches(['[', ']']).to_owned();
    let behind = authority.rsplit_once(']').map_or(authority, |(_, port)| port);
    let port = match behind.rsplit_once(':') {
        Some((_, port)) => port.parse().ok().filter(|port| *port != 0).ok_or_else(how)?,
        None if tls => 443,
        None => 80,
    };
    Ok(Endpoint { tls, place: Place::Tcp { host, port } })
}

fn hash_of(backend: &file::Backend, finder: &mut Finder<'_>) -> Option<HashOf> {
    let text = backend.hash.as_ref()?;
    let read = |text: &str| {
        let how = || format!("{text:?} is no part of a request: write \"address\", \"header:NAME\" or \"cookie:NAME\"");
        match text.split_once(':') {
            None if text == "address" => Ok(HashOf::Address),
            Some(("header", name)) => HeaderName::try_from(name).map(HashOf::Header).map_err(|_| how()),
            Some(("cookie", name)) => cookie_name(name).map(HashOf::Cookie),
            _ => Err(how()),
        }
    };
    finder.take(text.span(), read(text.get_ref()))
}

/// A name of a cookie is a token, as that of a header.
fn cookie_name(text: &str) -> Result<String, String> {
    let is_token = HeaderName::try_from(text).is_ok();
    is_token
        .then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no name of a cookie: use letters, digits, - and _"))
}

fn passive(backend: &file::Backend) -> Passive {
    let usual = Passive::default();
    Passive {
        failures: backend.failures.unwrap_or(usual.failures),
        time: backend.failure_time.map_or(usual.time, |Time(time)| time),
    }
}

fn times(backend: &file::Backend) -> Times {
    let usual = Times::default();
    let or = |given: Option<Time>, usual: Duration| given.map_or(usual, |Time(time)| time);
    Times {
        connect: or(backend.connect_time, usual.connect),
        head: or(backend.head_time, usual.head),
        body: or(backend.body_time, usual.body),
        idle: or(backend.idle_time.as_ref().map(|time| *time.get_ref()), usual.idle),
        tunnel: or(backend.tunnel_time, usual.tunnel),
    }
}

/// The wait for a server that has room.
fn wait(backend: &file::Backend, finder: &mut Finder<'_>) -> Wait {
    let usual = Wait::default();
    let keys = [
        (backend.wait_queue.as_ref().map(Spanned::span), "wait-queue"),
        (backend.wait_time.as_ref().map(Spanned::span), "wait-time"),
    ];
    for (span, key) in keys {
        if let Some(span) = span.filter(|_| backend.max_connections.is_none()) {
            finder
                .add(span, format!("{key} has no effect without max-connections: add that key, or leave this one out"));
        }
    }
    Wait {
        most: backend.wait_queue.as_ref().map_or(usual.most, |most| *most.get_ref()),
        time: backend.wait_time.as_ref().map_or(usual.time, |time| time.get_ref().0),
    }
}

fn check(check: &file::Check, endpoints: &[Endpoint], finder: &mut Finder<'_>) -> Check {
    if let Some(path) = check.path.as_ref().filter(|_| endpoints.iter().any(|endpoint| endpoint.tls)) {
        finder.add(path.span(), "checks of https servers only connect: leave out the path");
    }
    let path = |text: &Text| {
        let read = NormalPath::new(text.get_ref()).map(|_| text.get_ref().clone());
        finder.take(text.span(), read.map_err(|error| format!("{:?} is no path: {}", text.get_ref(), error.reason())))
    };
    let path = check.path.as_ref().and_then(path);
    let or = |given: Option<Time>, usual: u64| given.map_or_else(|| Duration::from_secs(usual), |Time(time)| time);
    Check {
        path,
        every: or(check.every, 5),
        timeout: or(check.timeout, 2),
        fall: finder.positive(check.fall.as_ref()).unwrap_or(3),
        rise: finder.positive(check.rise.as_ref()).unwrap_or(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_scheme_a_host_and_a_port() {
        let read = |text: &str| {
            endpoint(text)
                .map(|endpoint| (endpoint.tls, endpoint.authority(), matches!(endpoint.place, Place::Unix(_))))
        };
        assert_eq!(read("http://127.0.0.1:3000"), Ok((false, "127.0.0.1:3000".to_owned(), false)));
        assert_eq!(read("https://App.example/"), Ok((true, "app.example".to_owned(), false)));
        assert_eq!(read("http://[::1]:80"), Ok((false, "[::1]".to_owned(), false)));
        assert_eq!(read("http://[::1]"), Ok((false, "[::1]".to_owned(), false)));
        assert_eq!(read("unix:/run/app.sock"), Ok((false, "localhost".to_owned(), true)));
        for bad in
            ["127.0.0.1:3000", "http://", "http://a/b", "ftp://a", "http://a:0", "http://a:x", "unix:app.sock", ""]
        {
            assert!(read(bad).unwrap_err().contains("unix:/PATH"), "{bad}");
        }
    }
}
