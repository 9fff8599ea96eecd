//! Names, addresses, TCP, and what answers at the port.

use super::super::facts::{Address, Facts, Trouble, TroubleKind};
use super::judgement::{Verdict, fault, note};
use tautline::layers::tls::alert::Alert;

/// How a listener that expects a PROXY header treats a client, and what to do. Clients cannot tell it from other silence.
pub(super) const EXPECTS_PROXY: &str = "; a listener for the PROXY protocol (HAProxy: accept-proxy; nginx: listen … \
                                        proxy_protocol; taut: --proxy-protocol-from) ends or ignores a connection without its header: use the address of \
                                        the load balancer before it, or a listener without that";

pub(super) fn judge(facts: &Facts) -> Vec<Verdict> {
    if let Some(error) = facts.dns.as_ref().and_then(|dns| dns.error.as_ref()) {
        let remedy = format!(
            "check the spelling of the host, and ask the name servers (dig {} A AAAA); --address IP:PORT goes without a name",
            facts.host
        );
        return vec![fault("dns.failed", format!("the name {} does not resolve: {error}", facts.host), remedy)];
    }
    let all_dead = facts.addresses.iter().all(|address| address.trouble.is_some());
    let mut verdicts: Vec<Verdict> = Vec::new();
    for address in &facts.addresses {
        let Some(trouble) = &address.trouble else { continue };
        if all_dead {
            verdicts.push(unreachable(facts, address, trouble));
        } else {
            let title = format!("{} does not work, while others do: {}", address.address, trouble.text);
            let remedy = "take the address out of DNS, or repair the server behind it: clients that try it first wait";
            verdicts.push(fault("address.dead", title, remedy));
        }
    }
    // A fault that every address has is told once.
    if all_dead {
        verdicts.dedup_by(|one, other| one.id == other.id);
    }
    let other = facts.addresses.iter().find(|address| address.certificate_matches == Some(false));
    verdicts.extend(other.map(|address| {
        let title = format!("{} shows another certificate", address.address);
        note("address.certificate-differs", title, "look whether all servers have the new certificate")
    }));
    verdicts
}

/// The endpoint cannot be reached, or TLS does not come about.
fn unreachable(facts: &Facts, address: &Address, trouble: &Trouble) -> Verdict {
    let (at, text, port) = (&address.address, &trouble.text, facts.port);
    let scheme = if facts.websocket { "ws" } else { "http" };
    match trouble.kind {
        TroubleKind::Refused => fault(
            "tcp.refused",
            format!("{at} refuses connections"),
            format!("start the server, let it listen at port {port} of this address, or correct the port of the URL"),
        ),
        TroubleKind::Timeout if address.tcp_ms.is_none() => fault(
            "tcp.timeout",
            format!("{at} does not answer"),
            "look for a firewall that drops packets, and whether the machine runs; --timeout waits longer",
        ),
        TroubleKind::Unreachable => fault(
            "tcp.unreachable",
            format!("there is no way to {at}: {text}"),
            "look at the routes and interfaces of this machine: does it have IPv6, is the VPN up?",
        ),
        TroubleKind::Proxy => fault(
            "proxy.failed",
            format!("the proxy gives no tunnel: {text}"),
            "check --proxy, its login, and whether the proxy permits this host and port",
        ),
        TroubleKind::PlainHttp => fault(
            "tls.plain-http",
            format!("port {port} speaks plain HTTP, not TLS"),
            format!("turn TLS on at this port (nginx: listen {port} ssl), or use {scheme}:// or another port"),
        ),
        TroubleKind::NotTls => {
            fault("tls.not-tls", text.clone(), "correct the port of the URL: another service has this one")
        }
        TroubleKind::ClientCertificate => client_certificate(),
        TroubleKind::Alert(sent) => alert(sent, text),
        TroubleKind::Closed => fault(
            "tls.closed",
            format!("{at} closes the connection in the TLS handshake"),
            format!(
                "look into the server's log: it may have no certificate for this name, or a proxy may want another \
                 name{EXPECTS_PROXY}"
            ),
        ),
        TroubleKind::Timeout => fault(
            "tls.timeout",
            format!("{at} does not answer the TLS handshake"),
            format!("look whether the server is overloaded, or speaks TLS at all{EXPECTS_PROXY}"),
        ),
        TroubleKind::Other => {
            fault("tls.failed", format!("the TLS handshake with {at} fails: {text}"), "look into the server's log")
        }
    }
}

pub(super) fn client_certificate() -> Verdict {
    let title = "the server demands a certificate of the client";
    fault("tls.client-certificate", title, "pass --cert and --key, or make it optional at the server")
}

fn alert(sent: Alert, text: &str) -> Verdict {
    let remedy = match sent {
        Alert::PROTOCOL_VERSION => {
            "the server speaks neither TLS 1.2 nor TLS 1.3: turn these on (nginx: ssl_protocols TLSv1.2 TLSv1.3)"
        }
        Alert::UNRECOGNIZED_NAME => {
            "the server has no certificate for this name: add the name to its configuration, or correct the URL"
        }
        Alert::NO_APPLICATION_PROTOCOL => {
            "the server refuses HTTP/1.1 by ALPN: let it offer http/1.1, which WebSocket upgrades need"
        }
        Alert::HANDSHAKE_FAILURE => {
            "no suite or group fits both sides: offer ECDHE with AES-GCM at the server, and check that it has a \
             certificate"
        }
        _ => "look into the server's log: it ends the handshake by its own decision",
    };
    fault("tls.alert", text, remedy)
}
