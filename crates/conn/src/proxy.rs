//! Tunnels through proxies, without I/O: HTTP CONNECT (RFC 9110, section 9.3.6) and SOCKS5 (RFC 1928, RFC 1929).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::fmt;
use std::net::IpAddr;
use tautline_buf::Buf;
use tautline_ws::handshake::{ascii_host, percent_decode, split_zone};

/// Longest answer of a proxy, with the interim responses before it. Real ones are much shorter.
const MAX_ANSWER: usize = 16 << 10;

/// Most interim responses (1xx) before the answer.
const MAX_INTERIM: u8 = 32;

/// A proxy to connect through.
///
/// ```
/// # mod tautline { pub use tautline_conn::proxy::{Proxy, ProxyKind}; }
/// use tautline::{Proxy, ProxyKind};
///
/// let proxy: Proxy = "socks5://user:secret@proxy.example:1080".parse()?;
/// assert_eq!((proxy.kind, &*proxy.host, proxy.port), (ProxyKind::Socks5, "proxy.example", 1080));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proxy {
    /// The proxy's protocol.
    pub kind: ProxyKind,
    /// The proxy's host name or IP address; the zone of an address as in `fe80::1%252`.
    pub host: String,
    /// The proxy's port.
    pub port: u16,
    /// User name and password.
    pub credentials: Option<(String, String)>,
}

/// The protocol of a [`Proxy`].
///
/// ```
/// # mod tautline { pub use tautline_conn::proxy::{Proxy, ProxyKind}; }
/// use tautline::{Proxy, ProxyKind};
///
/// let proxy: Proxy = "http://proxy.example".parse()?;
/// assert_eq!((proxy.kind, proxy.port), (ProxyKind::Http, 3128));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyKind {
    /// HTTP CONNECT.
    Http,
    /// SOCKS5; the proxy resolves the host name.
    Socks5,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({:?}, {}:{})", self.kind, self.host, self.port)
    }
}

impl std::str::FromStr for Proxy {
    /// A message that contains no credentials.
    type Err = String;

    /// Parses `http://user:password@host:port` or `socks5://host:port`. In user name and password `%XX` stands for a byte.
    fn from_str(s: &str) -> Result<Self, String> {
        let (scheme, _) = s.split_once("://").ok_or("proxy: write http://HOST:PORT or socks5://HOST:PORT")?;
        let (kind, default_port) = match scheme {
            "http" => (ProxyKind::Http, 3128),
            "socks5" | "socks5h" => (ProxyKind::Socks5, 1080),
            _ => return Err(format!("proxy scheme {scheme:?}: only http and socks5 are supported")),
        };
        let authority = ascii_host(s).map_err(|error| format!("proxy: {error}"))?;
        let rest = &authority[scheme.len() + 3..];
        let (credentials, authority) = match rest.trim_end_matches('/').rsplit_once('@') {
            Some((user, authority)) => {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                let decode = |text| percent_decode(text).and_then(|bytes| String::from_utf8(bytes).ok());
                let (Some(name), Some(password)) = (decode(name), decode(password)) else {
                    return Err("proxy: its user name or password is malformed; write a % as %25".to_owned());
                };
                (Some((name, password)), authority)
            }
            None => (None, rest.trim_end_matches('/')),
        };
        let wrong = || format!("proxy: {authority:?} is not HOST:PORT");
        let authority: http::uri::Authority = authority.parse().map_err(|_| wrong())?;
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => default_port,
            _ => authority.port_u16().filter(|&port| port > 0).ok_or_else(wrong)?,
        };
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(wrong());
        }
        let (address, zone) = split_zone(host).map_err(|error| format!("proxy: {error}"))?;
        let host = zone.map_or_else(|| host.to_owned(), |zone| format!("{address}%25{zone}"));
        Ok(Self { kind, host, port, credentials })
    }
}

/// The negotiation of a tunnel with a proxy, without I/O: for programs with sockets of their own.
///
/// ```
/// use tautline_buf::Buf;
/// use tautline_conn::proxy::Tunnel;
///
/// let mut out = Buf::new();
/// let mut tunnel = Tunnel::new("http://proxy.example".parse()?, "example.com", 443, &mut out)?;
/// assert!(out.filled().starts_with(b"CONNECT example.com:443 HTTP/1.1\r\n"));
/// out.clear();
/// let answer = b"HTTP/1.1 200 OK\r\n\r\nfirst bytes of the server";
/// assert_eq!(tunnel.read(answer, &mut out)?, (19, true));
/// # Ok::<(), String>(())
/// ```
pub struct Tunnel {
    proxy: Proxy,
    host: String,
    port: u16,
    answer: Buf,
    /// Bytes and number of interim responses so far.
    interim: (usize, u8),
    expect: Expect,
}

/// The answer that the proxy sends next.
enum Expect {
    /// The response to CONNECT.
    Response,
    /// The method that a SOCKS5 proxy chose.
    Method,
    /// The result of the SOCKS5 login.
    Auth,
    /// The reply to the SOCKS5 request.
    Reply,
}

/// Without the credentials.
impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tunnel({:?}, {}:{})", self.proxy, self.host, self.port)
    }
}

impl Tunnel {
    /// Begins the negotiation of a tunnel to `host:port`, and appends the first bytes for the proxy to `out`.
    ///
    /// # Errors
    /// If the name or the credentials cannot be sent to this kind of proxy; the text says why.
    pub fn new(proxy: Proxy, host: &str, port: u16, out: &mut Buf) -> Result<Self, String> {
        let host = host.trim_matches(['[', ']']).to_owned();
        let mut tunnel = Self { proxy, host, port, answer: Buf::new(), interim: (0, 0), expect: Expect::Response };
        match tunnel.proxy.kind {
            ProxyKind::Http => {
                // The first ':' ends the user name (RFC 7617, section 2).
                if tunnel.proxy.credentials.as_ref().is_some_and(|(name, _)| name.contains(':')) {
                    return Err("a user name for an HTTP proxy cannot have a ':'".into());
                }
                tunnel.ask_connect(out);
            }
            ProxyKind::Socks5 => {
                // A proxy that needs no login may know method 0 alone (RFC 1928, section 3).
                out.put(if tunnel.proxy.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] });
                tunnel.expect = Expect::Method;
                if let Some((name, password)) = &tunnel.proxy.credentials
                    && (name.len() > 255 || password.len() > 255 || name.is_empty())
                {
                    return Err("SOCKS5 user names and passwords have 1 to 255 bytes".into());
                }
                if tunnel.host.len() > 255 {
                    return Err(format!("host name {:?} is too long for SOCKS5", tunnel.host));
                }
            }
        }
        Ok(tunnel)
    }

    /// Reads the proxy's bytes, and appends the next bytes for the proxy to `out`.
    ///
    /// Returns how many it used, and whether the tunnel is established. Further bytes are the server's.
    ///
    /// # Errors
    /// If the proxy refuses the tunnel, or is no proxy of this kind; the text says which.
    pub fn read(&mut self, bytes: &[u8], out: &mut Buf) -> Result<(usize, bool), String> {
        // Byte by byte, so that no byte behind the answer is used up. This happens once per connection.
        for (at, &byte) in bytes.iter().enumerate() {
            self.answer.put(&[byte]);
            if self.step(out)? {
                return Ok((at + 1, true));
            }
            if self.answer.len() + self.interim.0 >= MAX_ANSWER {
                return Err("the proxy's answer is too long".into());
            }
        }
        Ok((bytes.len(), false))
    }

    fn step(&mut self, out: &mut Buf) -> Result<bool, String> {
        let answer = self.answer.filled();
        match self.expect {
            Expect::Response if answer.ends_with(b"\r\n\r\n") => self.response(),
            Expect::Method if answer.len() == 2 => {
                match answer {
                    [5, 0] => self.ask_socks(out),
                    [5, 2] if self.proxy.credentials.is_some() => self.ask_auth(out),
                    &[5, method] => return Err(self.wrong_method(method)),
                    _ => return Err("this is no SOCKS5 proxy".into()),
                }
                Ok(false)
            }
            Expect::Auth if answer.len() == 2 => {
                if answer[1] != 0 {
                    return Err("the SOCKS5 proxy refused the user name or password".into());
                }
                self.ask_socks(out);
                Ok(false)
            }
            Expect::Reply => self.socks_reply(),
            _ => Ok(false),
        }
    }

    /// The error for a login method that cannot be used: the user's, or the proxy's if it was not offered.
    fn wrong_method(&self, method: u8) -> String {
        match (method, &self.proxy.credentials) {
            (0xff, None) => "the SOCKS5 proxy wants a login: write USER:PASSWORD@ before its host".into(),
            (0xff, Some(_)) => "the SOCKS5 proxy accepts neither a user name and password nor clients without".into(),
            _ => format!("the SOCKS5 proxy breaks its protocol: it chose login method {method}, which was not offered"),
        }
    }

    /// Judges the whole head of a response to CONNECT.
    fn response(&mut self) -> Result<bool, String> {
        let answer = self.answer.filled();
        let line = answer.split(|&b| b == b'\r').next().unwrap_or_default();
        match status(line) {
            Some(200..=299) => Ok(true),
            // Interim responses come before any answer (RFC 9110, section 15.2). 101 would be an answer to an upgrade.
            Some(100 | 102..=199) => {
                self.interim = (self.interim.0 + answer.len(), self.interim.1 + 1);
                self.answer.clear();
                if self.interim.1 > MAX_INTERIM {
                    return Err(format!("the proxy sent more than {MAX_INTERIM} interim responses (1xx)"));
                }
                Ok(false)
            }
            Some(407) if self.proxy.credentials.is_some() => {
                Err("the proxy refused the user name and password (407)".into())
            }
            Some(407) => Err("the proxy wants a user name and password (407)".into()),
            Some(_) => Err(format!("the proxy refused the tunnel: {:?}", String::from_utf8_lossy(line))),
            None => Err(format!("this is no HTTP proxy: it answered {:?}", String::from_utf8_lossy(line))),
        }
    }

    fn socks_reply(&self) -> Result<bool, String> {
        let answer = self.answer.filled();
        if answer.first().is_some_and(|&version| version != 5) {
            return Err("this is no SOCKS5 proxy".into());
        }
        if let Some(&code) = answer.get(1)
            && code != 0
        {
            let why = match code {
                1 => "general failure",
                2 => "not allowed by its rules",
                3 => "network unreachable",
                4 => "host unreachable",
                5 => "connection refused",
                6 => "TTL expired",
                7 => "command not supported",
                8 => "address type not supported",
                _ => "unknown reason",
            };
            return Err(format!("the SOCKS5 proxy could not connect to {}:{}: {why}", self.host, self.port));
        }
        let address = match answer.get(3) {
            None => return Ok(false),
            Some(1) => 4,
            Some(4) => 16,
            Some(3) => match answer.get(4) {
                None => return Ok(false),
                Some(&len) => 1 + usize::from(len),
            },
            Some(_) => return Err("this is no SOCKS5 proxy".into()),
        };
        Ok(answer.len() == 4 + address + 2)
    }

    fn ask_connect(&mut self, out: &mut Buf) {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        out.put(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n", port = self.port).as_bytes());
        if let Some((name, password)) = &self.proxy.credentials {
            let basic = BASE64_STANDARD.encode(format!("{name}:{password}"));
            out.put(format!("Proxy-Authorization: Basic {basic}\r\n").as_bytes());
        }
        out.put(b"\r\n");
        self.expect = Expect::Response;
    }

    fn ask_auth(&mut self, out: &mut Buf) {
        self.answer.clear();
        if let Some((name, password)) = &self.proxy.credentials {
            out.put(&[1, short_len(name)]);
            out.put(name.as_bytes());
            out.put(&[short_len(password)]);
            out.put(password.as_bytes());
        }
        self.expect = Expect::Auth;
    }

    fn ask_socks(&mut self, out: &mut Buf) {
        self.answer.clear();
        out.put(&[5, 1, 0]);
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => {
                out.put(&[1]);
                out.put(&address.octets());
            }
            Ok(IpAddr::V6(address)) => {
                out.put(&[4]);
                out.put(&address.octets());
            }
            Err(_) => {
                out.put(&[3, short_len(&self.host)]);
                out.put(self.host.as_bytes());
            }
        }
        out.put(&self.port.to_be_bytes());
        self.expect = Expect::Reply;
    }
}

/// The status in the first line of a response: exactly three digits (RFC 9112, section 4).
fn status(line: &[u8]) -> Option<u16> {
    let [b'0'..=b'9', b' ', code @ ..] = line.strip_prefix(b"HTTP/1.")? else { return None };
    let (digits, rest) = code.split_first_chunk::<3>()?;
    let is_whole = rest.first().is_none_or(|&next| next == b' ') && digits.iter().all(u8::is_ascii_digit);
    let status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(digit & 0x0f));
    (is_whole && status >= 100).then_some(status)
}

/// The length as a byte. [`Tunnel::new`] has checked that it fits.
fn short_len(text: &str) -> u8 {
    u8::try_from(text.len()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Proxy, ProxyKind, Tunnel};
    use tautline_buf::Buf;

    fn ask(proxy: &str, host: &str) -> (Tunnel, Buf) {
        let mut out = Buf::new();
        let tunnel = Tunnel::new(proxy.parse().unwrap(), host, 443, &mut out).unwrap();
        (tunnel, out)
    }

    #[test]
    fn parses_proxy_urls() {
        let proxy: Proxy = "http://me:secret@[::1]:8080/".parse().unwrap();
        assert_eq!((proxy.kind, proxy.host.as_str(), proxy.port), (ProxyKind::Http, "::1", 8080));
        assert_eq!(proxy.credentials, Some(("me".into(), "secret".into())));
        let proxy: Proxy = "socks5://gate".parse().unwrap();
        assert_eq!((proxy.kind, proxy.host.as_str(), proxy.port), (ProxyKind::Socks5, "gate", 1080));
        let proxy: Proxy = "http://me%40home:a:b%2f%C3%A4@gate".parse().unwrap();
        assert_eq!(proxy.credentials, Some(("me@home".into(), "a:b/\u{e4}".into())));
        for bad in ["http://me:100%@gate", "http://me:%ff@gate"] {
            let error = bad.parse::<Proxy>().unwrap_err();
            assert!(error.contains("%25") && !error.contains(":100"), "{error}");
        }
        assert!("https://gate".parse::<Proxy>().is_err());
        let proxy: Proxy = "socks5://me:secret@b\u{fc}cher.example:1".parse().unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("xn--bcher-kva.example", 1));
        let proxy: Proxy = "http://[fe80::1%2]:8080".parse().unwrap();
        assert_eq!((&*proxy.host, proxy.port), ("fe80::1%252", 8080));
        for (bad, word) in [("http://[fe80::1%eth0]", "zone"), ("http://me:secret@\u{fc}..x", "international")] {
            let error = bad.parse::<Proxy>().unwrap_err();
            assert!(error.contains(word) && !error.contains("secret"), "{error}");
        }
        for bad in
            ["me:secret@gate:80", "http://me:secret@gate:99999", "http://me:secret@ga te", "socks5://me:secret@:1"]
        {
            let error = bad.parse::<Proxy>().unwrap_err();
            assert!(error.contains("HOST:PORT") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn connect_leaves_bytes_behind_the_answer() {
        let (mut tunnel, out) = ask("http://me:secret@gate", "::1");
        let asked = std::str::from_utf8(out.filled()).unwrap();
        assert!(asked.starts_with("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n"), "{asked}");
        assert!(asked.contains("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"), "{asked}");
        let answer = b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n\x16\x03";
        assert_eq!(tunnel.read(answer, &mut Buf::new()), Ok((answer.len() - 2, true)));
    }

    #[test]
    fn refuses_a_colon_in_an_http_user_name() {
        let proxy: Proxy = "http://me%3A:secret@gate".parse().unwrap();
        let error = Tunnel::new(proxy, "example.org", 443, &mut Buf::new()).err().unwrap();
        assert!(error.contains("user name"), "{error}");
    }

    #[test]
    fn reports_refusals_of_connect() {
        for (answer, word) in
            [("HTTP/1.1 407 No\r\n\r\n", "407"), ("HTTP/1.0 502 Bad\r\n\r\n", "502"), ("hi\r\n\r\n", "hi")]
        {
            let (mut tunnel, _) = ask("http://gate", "example.org");
            let error = tunnel.read(answer.as_bytes(), &mut Buf::new()).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let (mut tunnel, _) = ask("http://gate", "example.org");
        assert!(tunnel.read(&[b'x'; 20_000], &mut Buf::new()).is_err());
    }

    #[test]
    fn interim_responses_before_the_answer_are_skipped() {
        let answer =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200\r\n\r\nTLS";
        for step in [1, 7, answer.len()] {
            let (mut tunnel, _) = ask("http://gate", "example.org");
            let mut read = 0;
            loop {
                let end = answer.len().min(read + step);
                let (used, is_up) = tunnel.read(&answer[read..end], &mut Buf::new()).unwrap();
                read += used;
                if is_up {
                    break;
                }
            }
            assert_eq!(&answer[read..], b"TLS", "{step}");
        }
        for (endless, word) in [
            ("HTTP/1.1 100 Continue\r\n\r\n".repeat(33), "interim"),
            (format!("HTTP/1.1 103 x\r\nLink: {}\r\n\r\n", "x".repeat(9_000)).repeat(2), "too long"),
            ("HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(), "101"),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 502 Bad\r\n\r\n".to_owned(), "502"),
        ] {
            let (mut tunnel, _) = ask("http://gate", "example.org");
            let error = tunnel.read(endless.as_bytes(), &mut Buf::new()).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_status_of_other_than_three_digits_is_no_success() {
        for bad in ["2zz OK", "2", "20 OK", "2000", "+20 OK", "099 x", "200OK", " 200 OK", "2\u{b2}0 OK"] {
            let (mut tunnel, _) = ask("http://gate", "example.org");
            let error = tunnel.read(format!("HTTP/1.1 {bad}\r\n\r\n").as_bytes(), &mut Buf::new()).unwrap_err();
            assert!(error.contains("no HTTP proxy") && error.contains(bad), "{error}");
        }
        for good in ["200", "200 ", "299 Connection established"] {
            let (mut tunnel, _) = ask("http://gate", "example.org");
            let answer = format!("HTTP/1.0 {good}\r\n\r\n");
            assert_eq!(tunnel.read(answer.as_bytes(), &mut Buf::new()), Ok((answer.len(), true)));
        }
        for refused in ["600 x", "999 x", "304 x"] {
            let (mut tunnel, _) = ask("http://gate", "example.org");
            let error = tunnel.read(format!("HTTP/1.1 {refused}\r\n\r\n").as_bytes(), &mut Buf::new()).unwrap_err();
            assert!(error.contains("refused the tunnel"), "{error}");
        }
    }

    #[test]
    fn socks_logs_in_and_connects_by_name() {
        let (mut tunnel, out) = ask("socks5://me:secret@gate", "example.org");
        assert_eq!(out.filled(), [5, 2, 0, 2]);
        let mut out = Buf::new();
        assert_eq!(tunnel.read(&[5, 2], &mut out), Ok((2, false)));
        assert_eq!(out.filled(), b"\x01\x02me\x06secret");
        out.clear();
        assert_eq!(tunnel.read(&[1, 0], &mut out), Ok((2, false)));
        assert_eq!(out.filled(), b"\x05\x01\x00\x03\x0bexample.org\x01\xbb");
        let answer = [5, 0, 0, 3, 2, b'a', b'b', 0, 80, 99];
        assert_eq!(tunnel.read(&answer, &mut out), Ok((9, true)));
    }

    #[test]
    fn socks_proxies_may_need_no_login() {
        let (mut tunnel, out) = ask("socks5://me:secret@gate", "example.org");
        assert_eq!(out.filled(), [5, 2, 0, 2]);
        let mut out = Buf::new();
        assert_eq!(tunnel.read(&[5, 0], &mut out), Ok((2, false)));
        assert_eq!(out.filled(), b"\x05\x01\x00\x03\x0bexample.org\x01\xbb");
        let (_, out) = ask("socks5://gate", "example.org");
        assert_eq!(out.filled(), [5, 1, 0]);
    }

    #[test]
    fn errors_of_a_login_name_the_party_at_fault() {
        let refused = |proxy: &str, answer: &[u8]| ask(proxy, "a").0.read(answer, &mut Buf::new()).unwrap_err();
        for method in [1, 2, 3, 0xfe] {
            let error = refused("socks5://gate", &[5, method]);
            assert_eq!(
                error,
                format!("the SOCKS5 proxy breaks its protocol: it chose login method {method}, which was not offered")
            );
        }
        assert!(refused("socks5://me:secret@gate", &[5, 1]).contains("was not offered"));
        assert!(refused("socks5://gate", &[5, 0xff]).contains("USER:PASSWORD@"));
        assert!(refused("socks5://me:secret@gate", &[5, 0xff]).contains("accepts neither"));
        assert_eq!(refused("socks5://gate", &[4, 0]), "this is no SOCKS5 proxy");
        let answer = b"HTTP/1.1 407 No\r\n\r\n";
        assert!(refused("http://gate", answer).contains("wants a user name"));
        assert!(refused("http://me:secret@gate", answer).contains("refused the user name"));
    }

    #[test]
    fn reports_refusals_of_socks() {
        let (mut tunnel, _) = ask("socks5://gate", "10.0.0.1");
        let mut out = Buf::new();
        assert_eq!(tunnel.read(&[5, 0], &mut out), Ok((2, false)));
        assert_eq!(out.filled(), [5, 1, 0, 1, 10, 0, 0, 1, 1, 187]);
        let error = tunnel.read(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0], &mut out).unwrap_err();
        assert!(error.contains("refused"), "{error}");
        let (mut tunnel, _) = ask("socks5://gate", "10.0.0.1");
        assert!(tunnel.read(b"HTTP/1.1 400", &mut out).is_err());
    }
}
