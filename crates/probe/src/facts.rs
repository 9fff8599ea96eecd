//! Everything that a look at an endpoint found, without any judgement. `--json` prints these values.

use serde::Serialize;
use tautline::layers::tls::alert::Alert;

/// All that was found about one endpoint.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// The endpoint.
    pub url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The scheme is wss or https.
    pub(crate) secure: bool,
    /// The scheme is ws or wss.
    pub(crate) websocket: bool,
    pub(crate) proxy: Option<String>,
    /// URLs that redirected to this one, in order.
    pub redirected_from: Vec<String>,
    pub(crate) dns: Option<Dns>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) tls: Option<Tls>,
    pub(crate) chain: Option<Chain>,
    pub(crate) resumption: Option<Resumption>,
    pub(crate) scan: Option<Scan>,
    /// HTTP/2; `None` if this build does not look at it.
    pub(crate) http2: Option<Http2>,
    /// The answer to the request.
    pub http: Option<Http>,
    pub(crate) session: Option<Session>,
    pub(crate) sizes: Option<Sizes>,
    pub(crate) idle: Option<Idle>,
    pub(crate) sent: Sent,
}

/// All that was sent: what `--plan` announces is the upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// Connections, over TCP or to the proxy.
    pub connections: usize,
    /// Upgrades and plain GETs.
    pub requests: usize,
    /// Pings of the open WebSocket.
    pub pings: usize,
    /// Headers of messages whose content never followed.
    pub message_headers: usize,
}

/// The look-up of the host's name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Dns {
    pub(crate) ms: f64,
    pub(crate) error: Option<String>,
}

/// One address of the endpoint.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Address {
    pub(crate) address: String,
    pub(crate) tcp_ms: Option<f64>,
    pub(crate) tls_ms: Option<f64>,
    pub(crate) trouble: Option<Trouble>,
    /// Its certificate is that of the address that was looked at in full.
    pub(crate) certificate_matches: Option<bool>,
    /// The look at the endpoint continued here.
    pub(crate) main: bool,
}

/// A connection that did not come about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    pub(crate) text: String,
}

/// The kinds of trouble that have a remedy of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TroubleKind {
    /// TCP: nobody listens.
    Refused,
    /// Nothing came back in time, in TCP, TLS or HTTP.
    Timeout,
    /// No way to the address.
    Unreachable,
    /// The proxy gave no tunnel.
    Proxy,
    /// The port answers a TLS handshake in plain HTTP.
    PlainHttp,
    /// The port answers with bytes of another protocol.
    NotTls,
    /// The server answered the TLS handshake with this alert.
    Alert(#[serde(skip)] Alert),
    /// The peer closed the connection.
    Closed,
    /// The server asks for a certificate of the client.
    ClientCertificate,
    /// Anything else.
    Other,
}

/// The TLS connection that was looked at in full.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tls {
    pub(crate) version: String,
    pub(crate) suite: String,
    pub(crate) group: String,
    pub(crate) alpn: Option<String>,
    pub(crate) resumed: bool,
    /// The signature of the handshake does not fit the certificate.
    pub(crate) bad_signature: Option<String>,
}

/// The certificates that the server sent.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Chain {
    pub(crate) certificates: Vec<Certificate>,
    /// The name that the certificate must have.
    pub(crate) name: String,
    pub(crate) name_fits: bool,
    /// The result of verification as a client does it.
    pub(crate) trust: Trust,
    /// The reason in the words of the verifier, if the chain is not trusted.
    pub(crate) error: Option<String>,
    /// The last issuer that was neither sent nor trusted.
    pub(crate) missing: Option<String>,
    /// Verification would succeed if dates and names did not count.
    pub(crate) path_holds: bool,
    /// The stapled OCSP response.
    pub(crate) ocsp: Option<Staple>,
}

/// A stapled OCSP response.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Staple {
    pub(crate) bytes: usize,
    pub(crate) status: Status,
    /// Unix time in seconds from which the status holds, and at which the next response is due.
    pub(crate) this_update: i64,
    pub(crate) next_update: Option<i64>,
    /// The dates as text, in UTC.
    pub(crate) valid: String,
    /// The date and the reason of a revocation.
    pub(crate) revoked: Option<String>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) certified: Certified,
}

/// The status of the server's certificate in an OCSP response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
    Good,
    Revoked,
    /// The responder does not know the certificate.
    Unknown,
    /// The response is about other certificates.
    OtherCertificate,
    /// The responder did not answer, for this reason.
    Refused(String),
    /// The bytes are no OCSP response.
    #[default]
    Malformed,
}

/// Whose signature an OCSP response has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Certified {
    /// That of the certificate's issuer.
    ByIssuer,
    /// That of this responder, which the issuer appointed.
    ByResponder(String),
    /// It does not count, for this reason.
    Wrong(String),
    /// It could not be verified, for this reason.
    NotVerified(String),
}

impl Default for Certified {
    fn default() -> Self {
        Self::NotVerified("it has none".to_owned())
    }
}

/// Whether clients trust a chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Trust {
    #[default]
    NotVerified,
    Trusted,
    Untrusted,
}

/// One certificate.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Certificate {
    /// The distinguished name of the owner.
    pub subject: String,
    /// The distinguished name of the authority.
    pub issuer: String,
    /// DNS names and IP addresses.
    pub names: Vec<String>,
    /// Unix time in seconds.
    pub(crate) not_before: i64,
    pub(crate) not_after: i64,
    /// The dates as text, in UTC.
    pub valid: String,
    /// Days from now until the end, negative behind it.
    pub days_left: i64,
    /// Days from now until the beginning, 0 behind it.
    pub(crate) days_until_valid: i64,
    /// Such as `RSA 2048` or `EC P-256`.
    pub key: String,
    pub(crate) weak_key: bool,
    /// The algorithm of the authority's signature.
    pub signature: String,
    pub(crate) weak_signature: bool,
    pub(crate) is_ca: bool,
    pub(crate) self_issued: bool,
    /// The certificate requires a stapled OCSP response.
    pub(crate) must_staple: bool,
    /// Where the issuer's certificate can be fetched.
    pub(crate) issuer_url: Option<String>,
    pub(crate) ocsp_url: Option<String>,
    /// The certificate could not be parsed.
    pub(crate) malformed: bool,
}

/// Tickets and resumed handshakes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Resumption {
    /// Tickets or sessions that the first connection left.
    pub(crate) tickets: usize,
    /// Whether a second connection resumed; `None` if no attempt could be made.
    pub(crate) resumes: Option<bool>,
    /// Whether a connection to another address resumed.
    pub(crate) other_address: Option<OtherAddress>,
    /// Times of handshakes without TCP, in order.
    pub(crate) full_ms: Vec<f64>,
    pub(crate) resumed_ms: Vec<f64>,
}

/// A resumption at another address of the endpoint.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OtherAddress {
    pub(crate) address: String,
    pub(crate) resumes: bool,
}

/// Handshakes with restricted offers.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Scan {
    pub(crate) versions: Vec<Offer>,
    pub(crate) suites: Vec<Offer>,
    pub(crate) groups: Vec<Offer>,
    /// The protocol that the server takes when HTTP/2 is offered too.
    pub(crate) alpn_with_h2: Option<String>,
    /// The handshake without a name.
    pub(crate) without_name: Option<WithoutName>,
}

/// An offer, and the server's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) answer: Answer,
}

/// The answer to an offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Taken,
    Refused,
    /// Neither: the text says why.
    Unclear(String),
}

/// The answer to a handshake without SNI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WithoutName {
    SameCertificate,
    OtherCertificate,
    Refused,
}

/// HTTP/2, on a connection of its own.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Http2 {
    /// The server chose h2 by ALPN.
    pub(crate) offered: bool,
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441); `None` without SETTINGS.
    pub(crate) websockets: Option<bool>,
    /// The limits of SETTINGS.
    pub(crate) max_streams: Option<u32>,
    pub(crate) window: Option<u32>,
    pub(crate) max_frame: Option<u32>,
    pub(crate) max_fields: Option<u32>,
    /// The answer to a WebSocket's request, which is sent only if the server announces that it takes them.
    pub(crate) status: Option<u16>,
    pub(crate) ms: Option<f64>,
    /// The round trip of a ping on that WebSocket.
    pub(crate) pong_ms: Option<f64>,
    /// The reason why the look ended early.
    pub(crate) error: Option<String>,
}

/// The server's answer to the request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Http {
    /// From the request to the head of the answer.
    pub(crate) ms: f64,
    /// `None` if there is no answer.
    pub status: Option<u16>,
    pub(crate) version: String,
    pub(crate) headers: Vec<(String, String)>,
    /// The beginning of the body.
    pub(crate) body: String,
    pub(crate) body_bytes: usize,
    /// The upgrade succeeded.
    pub(crate) upgraded: bool,
    /// The rule of RFC 6455 that a 101 breaks, or the reason why there is no answer.
    pub(crate) error: Option<String>,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) subprotocols_offered: Vec<String>,
    pub(crate) subprotocol: Option<String>,
    pub(crate) extensions_offered: String,
    pub(crate) extensions: Option<String>,
    pub(crate) deflate: Option<String>,
    /// `--deflate`: the user relies on compression.
    pub(crate) deflate_wanted: bool,
    /// The URL of a redirection.
    pub location: Option<String>,
}

/// The open WebSocket.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Session {
    /// From the answer to the first message; `None` if none arrived while it was open.
    pub(crate) first_message_ms: Option<f64>,
    /// Messages that arrived, and their bytes.
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    pub(crate) pings_sent: usize,
    /// Round trips of the pings that were answered, in order.
    pub(crate) pings_ms: Vec<f64>,
    /// The connection answered a ping after new keys for both directions.
    pub(crate) key_update: Option<bool>,
    /// The end of the connection, if the server ended it before the probe did.
    pub(crate) lost: Option<String>,
    pub(crate) close: Option<Close>,
}

/// The answer to a close frame with code 1000.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Close {
    pub(crate) ms: f64,
    /// The code of the server's close frame; 1005 if the frame has none.
    pub(crate) code: Option<u16>,
    pub(crate) reason: String,
    /// The server ended TLS by close_notify.
    pub(crate) close_notify: Option<bool>,
    /// The server closed TCP in time.
    pub(crate) tcp_closed: bool,
}

/// The sizes of messages that headers announced.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sizes {
    /// The largest size that was not refused by its header alone.
    pub(crate) accepted: u64,
    /// The smallest size that was refused.
    pub(crate) refused: Option<u64>,
    /// The close code of the refusal; `None` if the server closed without one.
    pub(crate) code: Option<u16>,
}

/// A connection on which the probe stayed silent.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Idle {
    pub(crate) asked_s: f64,
    /// Seconds until the server ended it.
    pub(crate) closed_after_s: Option<f64>,
    pub(crate) code: Option<u16>,
    /// Pings of the server, which were answered.
    pub(crate) server_pings: usize,
    pub(crate) error: Option<String>,
}

/// The value at a share of sorted values; `None` without values.
pub(crate) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The nearest rank: the smallest value that at least this share does not exceed.
    let rank = (0..sorted.len()).find(|index| (index + 1) as f64 >= share * sorted.len() as f64 - 1e-9)?;
    sorted.get(rank).copied()
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn quantiles_are_the_nearest_rank() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (share, expected) in [(0.0, 1.0), (0.5, 50.0), (0.9, 90.0), (0.99, 99.0), (1.0, 100.0)] {
            assert_eq!(quantile(&values, share), Some(expected), "{share}");
        }
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
    }
}
