//! The header of the PROXY protocol, versions 1 and 2, without I/O: haproxy.org/download/3.0/doc/proxy-protocol.txt.
//!
//! A proxy sends it before the first byte of its client, and so before TLS. It names the client's address. A header is read
//! whole or not at all, and a wrong one is an error: what follows could be anybody's.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use tautline_buf::Buf;
use tautline_io::Address;

/// Most bytes of a header of version 1 (section 2.1).
pub const MAX_V1: usize = 107;
/// Most bytes of a header of version 2 that are read: enough for the client's certificate among the values.
pub const MAX_V2: usize = 4 << 10;
/// Most bytes of a unique id (section 2.2.5).
const MAX_UNIQUE_ID: usize = 128;

const V1: &[u8] = b"PROXY ";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of a header of version 2 before its addresses.
const FIXED: usize = 16;
/// Bytes of the path of a Unix socket.
const PATH: usize = 108;

/// Types of values (section 2.2).
mod value {
    pub(super) const ALPN: u8 = 0x01;
    pub(super) const AUTHORITY: u8 = 0x02;
    pub(super) const CRC32C: u8 = 0x03;
    pub(super) const UNIQUE_ID: u8 = 0x05;
    pub(super) const SSL: u8 = 0x20;
    pub(super) const SSL_VERSION: u8 = 0x21;
    pub(super) const SSL_COMMON_NAME: u8 = 0x22;
    pub(super) const SSL_CIPHER: u8 = 0x23;
    pub(super) const SSL_SIGNATURE: u8 = 0x24;
    pub(super) const SSL_KEY: u8 = 0x25;
}

/// The facts in a header of the PROXY protocol.
///
/// ```
/// # mod tautline { pub use tautline_conn::proxy_header::ProxyHeader; }
/// use tautline::ProxyHeader;
/// use tautline_buf::Buf;
/// use tautline_conn::proxy_header::Addresses;
///
/// let bytes = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\nGET / HTTP/1.1\r\n";
/// let (header, len) = ProxyHeader::read(bytes)?.unwrap();
/// assert_eq!(header.client(), Some(&"192.0.2.7:4711".parse()?));
/// assert!(bytes[len..].starts_with(b"GET"));
///
/// let mut out = Buf::new();
/// header.write_v2(true, &mut out)?;
/// assert_eq!(ProxyHeader::read(out.filled())?.unwrap().0, header);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyHeader {
    /// The two ends of the client's connection. `None` if the connection is the proxy's own (`LOCAL`), such as a check of
    /// health, or if the proxy does not know (`UNKNOWN`, `UNSPEC`). Nothing else is read of such a header.
    pub addresses: Option<Addresses>,
    /// The protocol that client and proxy agreed upon in TLS.
    pub alpn: Option<Box<[u8]>>,
    /// The host name for which the client asked in TLS.
    pub authority: Option<Box<str>>,
    /// The proxy's name for this connection: at most 128 bytes.
    pub unique_id: Option<Box<[u8]>>,
    /// The client's TLS.
    pub tls: Option<Box<ProxyTls>>,
}

/// The two ends of the client's connection to a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub client: Address,
    /// The address to which the client connected.
    pub server: Address,
}

/// A proxy's facts of its client's TLS (section 2.2.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProxyTls {
    /// Whether the client spoke TLS.
    pub is_tls: bool,
    /// Whether the client has shown a certificate, in this connection or in the session that it resumed.
    pub has_certificate: bool,
    /// Whether the proxy has verified that certificate.
    pub is_verified: bool,
    /// The version, such as `TLSv1.3`.
    pub version: Option<Box<str>>,
    /// The common name of the client's certificate.
    pub common_name: Option<Box<str>>,
    /// The cipher suite.
    pub cipher: Option<Box<str>>,
    /// The algorithm that signed the proxy's certificate.
    pub signature: Option<Box<str>>,
    /// The algorithm of the proxy's key.
    pub key: Option<Box<str>>,
}

/// A header of the PROXY protocol that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyHeaderError {
    /// The bytes begin with something else; the text names it.
    Absent(&'static str),
    /// The header is longer than this many bytes.
    TooLong(usize),
    /// A part of the header is wrong; the text names it.
    Malformed(&'static str),
    /// The checksum (CRC-32C) is not that of the header.
    Checksum,
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(what) => write!(f, "no header of the PROXY protocol, but {what}"),
            Self::TooLong(most) => write!(f, "a header of the PROXY protocol of more than {most} bytes"),
            Self::Malformed(what) => write!(f, "a malformed header of the PROXY protocol: {what}"),
            Self::Checksum => f.write_str("a header of the PROXY protocol whose checksum (CRC-32C) is wrong"),
        }
    }
}

impl fmt::Debug for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ProxyHeaderError {}

type Result<T> = std::result::Result<T, ProxyHeaderError>;

const fn malformed<T>(what: &'static str) -> Result<T> {
    Err(ProxyHeaderError::Malformed(what))
}

/// The version of the header with which `bytes` begin, if five of its bytes or more are there.
///
/// For listeners that expect none: neither a record of TLS nor a request begins so.
#[must_use]
pub fn looks_like(bytes: &[u8]) -> Option<u8> {
    const ENOUGH: usize = 5;
    let begins = |signature: &[u8]| bytes.len() >= ENOUGH && begins(bytes, signature);
    if begins(V1) { Some(1) } else { begins(V2).then_some(2) }
}

/// Whether `bytes` are the beginning of a signature, or have it at their front.
fn begins(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(byte, expected)| byte == expected)
}

impl ProxyHeader {
    /// A header with these addresses alone.
    #[must_use]
    pub fn new(client: Address, server: Address) -> Self {
        Self { addresses: Some(Addresses { client, server }), ..Self::default() }
    }

    /// The client's address. `None` if the proxy is the client, or does not know.
    #[must_use]
    pub fn client(&self) -> Option<&Address> {
        self.addresses.as_ref().map(|addresses| &addresses.client)
    }

    /// Reads a header at the front of `bytes`. Returns it, and its length. `None` if further bytes are needed.
    ///
    /// # Errors
    /// No header can come of these bytes, whatever follows.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>> {
        if begins(bytes, V1) {
            if bytes.len() <= V1.len() {
                return Ok(None);
            }
            return read_v1(bytes);
        }
        if !begins(bytes, V2) {
            return Err(ProxyHeaderError::Absent(match bytes {
                // 22 is the type of a TLS handshake record.
                [22, ..] => "TLS",
                [b'A'..=b'Z', ..] => "something like a request of HTTP",
                _ => "other bytes",
            }));
        }
        let Some(fixed) = bytes.first_chunk::<FIXED>() else { return Ok(None) };
        let len = FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
        if len > MAX_V2 {
            return Err(ProxyHeaderError::TooLong(MAX_V2));
        }
        let header = bytes.get(..len).map(|whole| read_v2(fixed, whole)).transpose()?;
        Ok(header.map(|header| (header, len)))
    }

    /// Appends the header in version 1, which has the addresses alone. Other addresses than those of TCP are `UNKNOWN` there.
    pub fn write_v1(&self, out: &mut Buf) {
        let Some(Addresses { client: Address::Tcp(client), server: Address::Tcp(server) }) = &self.addresses else {
            return out.put(b"PROXY UNKNOWN\r\n");
        };
        let (family, [from, to]) = match same_family(client.ip(), server.ip()) {
            ips @ [IpAddr::V4(_), _] => ("TCP4", ips),
            ips => ("TCP6", ips),
        };
        out.put(format!("PROXY {family} {from} {to} {} {}\r\n", client.port(), server.port()).as_bytes());
    }

    /// Appends the header in version 2, with a checksum if `checked`. Without addresses it is `LOCAL`.
    ///
    /// # Errors
    /// The header is longer than [`MAX_V2`], or its parts do not fit the format.
    pub fn write_v2(&self, checked: bool, out: &mut Buf) -> Result<()> {
        let mut header = V2.to_vec();
        match &self.addresses {
            None => header.extend([0x20, 0, 0, 0]),
            Some(addresses) => {
                header.push(0x21);
                write_addresses(addresses, &mut header)?;
                self.write_values(&mut header)?;
            }
        }
        // The bytes of the checksum are zero while it is reckoned (section 2.2.4).
        let at = header.len() + 3;
        if checked {
            write_value(value::CRC32C, &[0; 4], &mut header)?;
        }
        if header.len() > MAX_V2 {
            return Err(ProxyHeaderError::TooLong(MAX_V2));
        }
        let len = u16::try_from(header.len() - FIXED).map_err(|_| ProxyHeaderError::TooLong(MAX_V2))?;
        header[14..FIXED].copy_from_slice(&len.to_be_bytes());
        if checked {
            let sum = crc32c(&header);
            header[at..at + 4].copy_from_slice(&sum.to_be_bytes());
        }
        out.put(&header);
        Ok(())
    }

    fn write_values(&self, out: &mut Vec<u8>) -> Result<()> {
        let values = [
            (value::ALPN, self.alpn.as_deref()),
            (value::AUTHORITY, self.authority.as_deref().map(str::as_bytes)),
            (value::UNIQUE_ID, self.unique_id.as_deref()),
        ];
        if self.unique_id.as_ref().is_some_and(|id| id.len() > MAX_UNIQUE_ID) {
            return malformed("a unique id of more than 128 bytes");
        }
        for (kind, value) in values {
            value.map_or(Ok(()), |value| write_value(kind, value, out))?;
        }
        let Some(tls) = &self.tls else { return Ok(()) };
        let flags = u8::from(tls.is_tls) | u8::from(tls.has_certificate) << 1;
        let mut inner = vec![flags];
        inner.extend(u32::from(!tls.is_verified).to_be_bytes());
        let ProxyTls { version, common_name, cipher, signature, key, .. } = &**tls;
        for (kind, text) in [
            (value::SSL_VERSION, version),
            (value::SSL_COMMON_NAME, common_name),
            (value::SSL_CIPHER, cipher),
            (value::SSL_SIGNATURE, signature),
            (value::SSL_KEY, key),
        ] {
            text.as_ref().map_or(Ok(()), |text| write_value(kind, text.as_bytes(), &mut inner))?;
        }
        write_value(value::SSL, &inner, out)
    }

    /// Its memory, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let len = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let tls = self.tls.as_ref().map_or(0, |tls| {
            let ProxyTls { version, common_name, cipher, signature, key, .. } = &**tls;
            size_of::<ProxyTls>() + [version, common_name, cipher, signature, key].map(len).iter().sum::<usize>()
        });
        let bytes = [&self.alpn, &self.unique_id].map(|bytes| bytes.as_ref().map_or(0, |bytes| bytes.len()));
        size_of::<Self>() + bytes.iter().sum::<usize>() + len(&self.authority) + tls
    }
}

/// Section 2.1.
fn read_v1(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>> {
    let most = bytes.len().min(MAX_V1);
    let Some(end) = bytes[..most].windows(2).position(|pair| pair == b"\r\n") else {
        return if most == MAX_V1 { Err(ProxyHeaderError::TooLong(MAX_V1)) } else { Ok(None) };
    };
    let len = end + 2;
    let Ok(line) = str::from_utf8(&bytes[V1.len()..end]) else { return malformed("a line that is no text") };
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Ok(Some((ProxyHeader::default(), len)));
    }
    let mut fields = line.split(' ');
    let mut next = || fields.next().unwrap_or_default();
    let (family, client, server) = (next(), next(), next());
    let (client, server) = match family {
        "TCP4" => (client.parse().map(IpAddr::V4).ok(), server.parse().map(IpAddr::V4).ok()),
        "TCP6" => (client.parse().map(IpAddr::V6).ok(), server.parse().map(IpAddr::V6).ok()),
        _ => return malformed("a protocol other than TCP4, TCP6 and UNKNOWN"),
    };
    let (Some(client), Some(server)) = (client, server) else { return malformed("an address of another form") };
    let (Some(from), Some(to)) = (port(next()), port(next())) else { return malformed("a port that is none") };
    if fields.next().is_some() {
        return malformed("something behind the ports");
    }
    let tcp = |ip, port| Address::Tcp(SocketAddr::new(ip, port));
    Ok(Some((ProxyHeader::new(tcp(client, from), tcp(server, to)), len)))
}

/// A decimal number without zeros in front.
fn port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_decimal)
}

/// Section 2.2. `whole` is the header, and `fixed` its front.
fn read_v2(fixed: &[u8; FIXED], whole: &[u8]) -> Result<ProxyHeader> {
    let command = match fixed[12] {
        0x20 => return Ok(ProxyHeader::default()),
        command if command >> 4 != 2 => return malformed("a version other than 2"),
        command => command & 0x0f,
    };
    if command != 1 {
        return malformed("a command other than LOCAL and PROXY");
    }
    let mut rest = &whole[FIXED..];
    let addresses = match fixed[13] {
        0x00 => return Ok(ProxyHeader::default()),
        0x11 => {
            let (client, server) = (*take::<4>(&mut rest)?, *take::<4>(&mut rest)?);
            let ports = [*take(&mut rest)?, *take(&mut rest)?];
            addresses(Ipv4Addr::from(client).into(), Ipv4Addr::from(server).into(), ports)
        }
        0x21 => {
            let (client, server) = (*take::<16>(&mut rest)?, *take::<16>(&mut rest)?);
            let ports = [*take(&mut rest)?, *take(&mut rest)?];
            addresses(Ipv6Addr::from(client).into(), Ipv6Addr::from(server).into(), ports)
        }
        0x31 => Addresses { client: unix(take(&mut rest)?), server: unix(take(&mut rest)?) },
        0x12 | 0x22 | 0x32 => return malformed("a client that sends datagrams"),
        _ => return malformed("a family of addresses or a protocol that is unknown"),
    };
    let mut header = ProxyHeader { addresses: Some(addresses), ..ProxyHeader::default() };
    let mut is_checked = false;
    while let Some((kind, value)) = next_value(&mut rest)? {
        match kind {
            value::ALPN => once(&mut header.alpn, value.into())?,
            value::AUTHORITY => once(&mut header.authority, text(value)?)?,
            value::UNIQUE_ID if value.len() > MAX_UNIQUE_ID => {
                return malformed("a unique id of more than 128 bytes");
            }
            value::UNIQUE_ID => once(&mut header.unique_id, value.into())?,
            value::SSL => once(&mut header.tls, Box::new(read_tls(value)?))?,
            value::CRC32C => {
                let Ok(&sum) = <&[u8; 4]>::try_from(value) else { return malformed("a checksum of another length") };
                if std::mem::replace(&mut is_checked, true) {
                    return malformed("a value twice");
                }
                let end = whole.len() - rest.len();
                let mut zeroed = whole.to_vec();
                zeroed[end - 4..end].fill(0);
                if crc32c(&zeroed) != u32::from_be_bytes(sum) {
                    return Err(ProxyHeaderError::Checksum);
                }
            }
            // Padding, the proxy's network namespace, and types of vendors.
            _ => {}
        }
    }
    Ok(header)
}

fn addresses(client: IpAddr, server: IpAddr, [from, to]: [[u8; 2]; 2]) -> Addresses {
    let tcp = |ip, port| Address::Tcp(SocketAddr::new(ip, u16::from_be_bytes(port)));
    Addresses { client: tcp(client, from), server: tcp(server, to) }
}

/// A path ends with its first zero. An abstract one, which begins with it, is no path.
fn unix(path: &[u8; PATH]) -> Address {
    let len = path.iter().position(|&byte| byte == 0).unwrap_or(PATH);
    match &path[..len] {
        [] => Address::UnixUnnamed,
        path => Address::Unix(std::ffi::OsString::from_vec(path.to_vec()).into()),
    }
}

/// Section 2.2.6.
fn read_tls(mut rest: &[u8]) -> Result<ProxyTls> {
    let &[flags] = take(&mut rest)?;
    let is_verified = *take(&mut rest)? == [0; 4];
    let has_certificate = flags & 0b110 != 0;
    let mut tls = ProxyTls {
        is_tls: flags & 1 != 0,
        has_certificate,
        is_verified: is_verified && has_certificate,
        ..ProxyTls::default()
    };
    while let Some((kind, value)) = next_value(&mut rest)? {
        let field = match kind {
            value::SSL_VERSION => &mut tls.version,
            value::SSL_COMMON_NAME => &mut tls.common_name,
            value::SSL_CIPHER => &mut tls.cipher,
            value::SSL_SIGNATURE => &mut tls.signature,
            value::SSL_KEY => &mut tls.key,
            _ => continue,
        };
        once(field, text(value)?)?;
    }
    Ok(tls)
}

fn once<T>(field: &mut Option<T>, value: T) -> Result<()> {
    if field.replace(value).is_some() { malformed("a value twice") } else { Ok(()) }
}

fn text(value: &[u8]) -> Result<Box<str>> {
    str::from_utf8(value).map(Into::into).or_else(|_| malformed("a text that is no UTF-8"))
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N]> {
    let Some((taken, after)) = rest.split_first_chunk() else { return malformed("it ends too early") };
    *rest = after;
    Ok(taken)
}

/// The next value: its type, and its bytes.
fn next_value<'a>(rest: &mut &'a [u8]) -> Result<Option<(u8, &'a [u8])>> {
    if rest.is_empty() {
        return Ok(None);
    }
    let &[kind, high, low] = take(rest)?;
    let Some((value, after)) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low]))) else {
        return malformed("a value longer than the header");
    };
    *rest = after;
    Ok(Some((kind, value)))
}

fn write_value(kind: u8, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let len = u16::try_from(value.len()).map_err(|_| ProxyHeaderError::TooLong(MAX_V2))?;
    out.push(kind);
    out.extend(len.to_be_bytes());
    out.extend(value);
    Ok(())
}

/// Appends the family, room for the length, and the addresses.
fn write_addresses(Addresses { client, server }: &Addresses, out: &mut Vec<u8>) -> Result<()> {
    if let (Address::Tcp(client), Address::Tcp(server)) = (client, server) {
        match same_family(client.ip(), server.ip()) {
            [IpAddr::V4(from), IpAddr::V4(to)] => {
                out.extend([0x11, 0, 0]);
                out.extend([from.octets(), to.octets()].concat());
            }
            ips => {
                out.extend([0x21, 0, 0]);
                ips.iter().for_each(|ip| out.extend(v6(*ip).octets()));
            }
        }
        out.extend([client.port().to_be_bytes(), server.port().to_be_bytes()].concat());
        return Ok(());
    }
    out.extend([0x31, 0, 0]);
    for address in [client, server] {
        let path = match address {
            Address::Unix(path) => path.as_os_str().as_bytes(),
            Address::UnixUnnamed => &[],
            _ => return malformed("an address of TCP and one of a Unix socket"),
        };
        if path.len() > PATH {
            return malformed("a path of more than 108 bytes");
        }
        out.extend(path);
        out.extend(&[0; PATH][path.len()..]);
    }
    Ok(())
}

/// Both addresses as they are, or both in IPv6.
fn same_family(client: IpAddr, server: IpAddr) -> [IpAddr; 2] {
    if client.is_ipv4() == server.is_ipv4() { [client, server] } else { [v6(client).into(), v6(server).into()] }
}

const fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// CRC-32C (RFC 3720, appendix B.4), bit by bit: a header comes once per connection.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 })
    })
}

#[cfg(test)]
mod tests;
