//! `taut probe`: one look at an endpoint, as a person would debug it.
//!
//! This is the command: arguments, output and the exit code. The look itself is `tautline_probe`.

use crate::failure::{Failure, printable};
use crate::output;
use crate::target;
use crate::trust::Trust;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tautline::Proxy;
use tautline::http::header::{HeaderName, HeaderValue};
use tautline::http::{HeaderMap, Uri};
use tautline::layers::ws::handshake;
use tautline_probe::{Facts, Level, Look, Request, Sent, Slo, Verdict, amount, duration, layout};

/// Look at an endpoint and say what is wrong with it, and what to do.
///
/// It looks at DNS, every address, TLS (versions, suites, groups, certificates, resumption), the HTTP answer, and the WebSocket
/// (extensions, pings, new keys, close, message sizes). It sends no message. --plan prints what it would send. Requests are
/// sent only where the certificate is trusted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut probe wss://localhost:8443/                  look at `taut serve`
  taut probe https://example.org/                   TLS and one GET
  taut probe --plan wss://example.org/feed          what it would send
  taut probe --slo p99=50ms --slo days=14 wss://example.org/feed
  taut probe --idle 90s wss://example.org/feed      is silence accepted for 90 seconds?
  taut probe --json wss://example.org/feed | jq '.verdicts[].title'

Thresholds (--slo NAME=VALUE):
  dns tcp tls upgrade first     longest time of a step, as upgrade=200ms; `first` waits for a message
  p50 p90 p99 max               longest round trip of pings
  full resumed                  longest handshake, by median
  days=14                       least days until the certificates end
  message=1MiB                  size of messages that must be accepted
  idle=90s                      silence that must be accepted

Exit codes: 0 without faults, 1 with faults, 3 if the endpoint cannot be used.")]
pub(crate) struct Arguments {
    /// Endpoint: wss://, ws://, https:// or http://, host, port, path.
    #[arg(value_name = "URL")]
    url: String,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Print the most that would be sent, and send nothing but DNS questions.
    #[arg(long)]
    plan: bool,
    /// Exit with 1 on warnings, too.
    #[arg(long)]
    strict: bool,
    /// Follow up to five redirections. Headers of -H go only to the host of the URL.
    #[arg(long)]
    follow: bool,
    /// Threshold that is a fault if it is missed. May be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    slo: Vec<Slo>,
    /// Stay silent on a connection for this time, to see whether it is ended.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle: Option<Duration>,
    /// Header to add to requests, for example `Authorization: Bearer TOKEN`. May be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = target::header)]
    header: Vec<(HeaderName, HeaderValue)>,
    /// Origin to send, as browsers do.
    #[arg(long, value_name = "URL")]
    origin: Option<String>,
    /// Subprotocol to offer. May be repeated, the preferred first.
    #[arg(long, value_name = "NAME")]
    subprotocol: Vec<String>,
    /// Warn if the server does not take compression, which is always offered.
    #[arg(long)]
    deflate: bool,
    /// Address to connect to instead of those of the host: IP:PORT. May be repeated.
    #[arg(help_heading = "Connection", long, value_name = "ADDR", conflicts_with = "proxy")]
    address: Vec<SocketAddr>,
    /// HTTP CONNECT or SOCKS5 proxy to connect through.
    #[arg(help_heading = "Connection", long, value_name = "http|socks5://HOST:PORT")]
    proxy: Option<Proxy>,
    /// Longest wait for each step.
    #[arg(help_heading = "Connection", long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    timeout: Duration,
    /// Pings to send.
    #[arg(help_heading = "Extent", long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(..=1000))]
    pings: u16,
    /// Full and resumed handshakes to time, of each.
    #[arg(help_heading = "Extent", long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(..=100))]
    handshakes: u16,
    /// Do not ask which versions, suites and groups the server takes.
    #[arg(help_heading = "Extent", long)]
    no_scan: bool,
    /// Largest size of a message to announce. Only its header is sent. 0 announces none.
    #[arg(help_heading = "Extent", long, value_name = "BYTES", default_value = "64MiB", value_parser = amount::bytes)]
    largest: usize,
    #[command(flatten)]
    trust: Trust,
}

/// Redirections that are followed.
const MOST_REDIRECTIONS: usize = 5;

/// Sizes of messages that are announced by default, as powers of two.
const SIZES: std::ops::RangeInclusive<u32> = 12..=40;

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let first = parse(&arguments.url)?;
    let mut uri = first.clone();
    let mut from = Vec::new();
    let facts = loop {
        let look = look(arguments, &uri, same_host(&first, &uri))?;
        let found = look.resolve();
        let plan = look.plan(found.1.len());
        if arguments.plan {
            return output::print(format_args!("{}\n", printable(&announce(&look, plan))));
        }
        if !arguments.json {
            output::note(format_args!("taut: {}", announce(&look, plan)));
        }
        let mut facts = tautline_probe::gather(&look, found, plan)?;
        let to = facts.http.as_ref().filter(|http| http.status.is_some_and(|status| (300..400).contains(&status)));
        let to = to.and_then(|http| http.location.as_deref()).and_then(|to| join(&uri, to, look.request.websocket));
        match to {
            Some(to) if arguments.follow && from.len() < MOST_REDIRECTIONS => {
                from.push(facts.url);
                uri = to;
            }
            _ => {
                facts.redirected_from = from;
                break facts;
            }
        }
    };
    let verdicts = tautline_probe::judge(&facts, &arguments.slo);
    if arguments.json {
        output::print(format_args!("{}\n", to_json(&facts, &verdicts)))?;
    } else {
        output::print(printable(&tautline_probe::report(&facts, &verdicts, layout::width())))?;
    }
    outcome(&facts, &verdicts, arguments.strict)
}

/// The exit code, and the gravest verdict in one line.
fn outcome(facts: &Facts, verdicts: &[Verdict], strict: bool) -> Result<(), Failure> {
    let worst = verdicts.first().filter(|worst| worst.level == Level::Fault || strict && worst.level == Level::Warning);
    let count = verdicts.iter().filter(|verdict| verdict.level == Level::Fault).count();
    let line = worst.map_or_else(
        || "the endpoint cannot be used".to_owned(),
        |worst| {
            let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            format!("{}{more}: {}", worst.title, worst.remedy)
        },
    );
    // A name in a certificate may have line ends.
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if !tautline_probe::is_usable(facts) {
        return Err(Failure::network(line));
    }
    if worst.is_some() { Err(Failure::failed(line)) } else { Ok(()) }
}

fn to_json(facts: &Facts, verdicts: &[Verdict]) -> serde_json::Value {
    json!({"facts": facts, "verdicts": verdicts, "usable": tautline_probe::is_usable(facts)})
}

fn parse(url: &str) -> Result<Uri, Failure> {
    handshake::parse_uri(url).map_err(|error| Failure::usage(format!("{url:?}: {error}; write wss://HOST[:PORT]/PATH")))
}

fn same_host(one: &Uri, other: &Uri) -> bool {
    let host = |uri: &Uri| (uri.host().map(str::to_ascii_lowercase), port(uri), is_secure(uri));
    host(one) == host(other)
}

fn is_secure(uri: &Uri) -> bool {
    uri.scheme_str().is_some_and(|scheme| matches!(&*scheme.to_ascii_lowercase(), "wss" | "https"))
}

fn is_websocket(uri: &Uri) -> bool {
    uri.scheme_str().is_some_and(|scheme| matches!(&*scheme.to_ascii_lowercase(), "wss" | "ws"))
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or_else(|| if is_secure(uri) { 443 } else { 80 })
}

/// The look that the arguments ask for. `with_headers` is false for other hosts, which get no credentials.
fn look(arguments: &Arguments, uri: &Uri, with_headers: bool) -> Result<Look, Failure> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let shown = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    if shown != authority && !is_websocket(uri) {
        return Err(Failure::usage("write credentials as -H 'Authorization: …': http:// and https:// take none here"));
    }
    let mut headers = HeaderMap::new();
    if with_headers {
        headers.extend(arguments.header.iter().cloned());
    }
    let request = Request {
        uri: uri.clone(),
        websocket: is_websocket(uri),
        headers,
        origin: arguments.origin.clone(),
        subprotocols: arguments.subprotocol.clone(),
        deflate_wanted: arguments.deflate,
    };
    request.check().map_err(|error| Failure::usage(error.to_string()))?;
    let (slo, largest) = (&arguments.slo, arguments.largest as u64);
    let mut sizes: Vec<u64> = SIZES.map(|bits| 1 << bits).filter(|&size| size <= largest).collect();
    // A power of two is in the range already.
    sizes.extend(Some(largest).filter(|size| *size > 0));
    sizes.extend(slo.iter().filter_map(Slo::message));
    sizes.sort_unstable();
    sizes.dedup();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(Look {
        url: format!("{}://{shown}{path}", uri.scheme_str().unwrap_or_default()),
        port: port(uri),
        secure: is_secure(uri),
        tls: arguments.trust.config(&host)?,
        host,
        request,
        proxy: arguments.proxy.clone(),
        addresses: if with_headers { arguments.address.clone() } else { Vec::new() },
        timeout: arguments.timeout,
        pings: usize::from(arguments.pings),
        handshakes: usize::from(arguments.handshakes),
        scans: !arguments.no_scan,
        first_message: slo.iter().filter_map(Slo::first_message).max(),
        idle: slo.iter().filter_map(Slo::idle).chain(arguments.idle).max(),
        sizes,
    })
}

/// The most that will be sent, in a sentence.
fn announce(look: &Look, plan: Sent) -> String {
    let Sent { connections, requests, pings, message_headers } = plan;
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![count(connections, "connection"), count(requests, "request")];
    if look.request.websocket {
        parts.push(count(pings, "ping"));
        parts.push(count(message_headers, "header") + " of messages without their content");
    }
    format!("sends {} at most {}, and no message", look.url, parts.join(", "))
}

/// The URL of a redirection.
fn join(base: &Uri, to: &str, websocket: bool) -> Option<Uri> {
    let scheme = base.scheme_str()?;
    let authority = base.authority()?.as_str();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, rest)| rest);
    let to = to.split('#').next()?;
    let whole = if to.contains("://") {
        to.to_owned()
    } else if let Some(rest) = to.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{to}")
    };
    // Servers redirect by http and https; a WebSocket stays one.
    let whole = match whole.strip_prefix("http") {
        Some(rest) if websocket => format!("ws{rest}"),
        _ => whole,
    };
    handshake::parse_uri(&whole).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_joined() {
        let base: Uri = "wss://user:pw@a.test:8443/x/y?q".parse().unwrap();
        for (to, expected) in [
            ("https://b.test/z", "wss://b.test/z"),
            ("http://b.test/z#part", "ws://b.test/z"),
            ("//c.test/", "wss://c.test/"),
            ("/z?w", "wss://a.test:8443/z?w"),
            ("z", "wss://a.test:8443/x/z"),
        ] {
            assert_eq!(join(&base, to, true).unwrap().to_string(), expected, "{to}");
        }
        assert_eq!(join(&base, "https://b.test/", false).unwrap().to_string(), "https://b.test/");
        for bad in ["ftp://b.test/", "https:///", "https://b test/"] {
            assert_eq!(join(&base, bad, true), None, "{bad}");
        }
    }

    #[test]
    fn other_hosts_ports_and_schemes_get_no_headers() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let first = uri("wss://a.test/x");
        assert!(same_host(&first, &uri("wss://A.test:443/y")));
        for other in ["ws://a.test/x", "wss://b.test/x", "wss://a.test:444/x"] {
            assert!(!same_host(&first, &uri(other)), "{other}");
        }
    }
}
