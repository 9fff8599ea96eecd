//! PEM (RFC 7468): the one reader of certificates and private keys, for all engines.
//!
//! A reader that skips what it does not understand loses a certificate without a word, and with it trust. This one reads
//! markers wherever they are in a line, and skips a byte-order mark. It skips text outside of sections, as RFC 7468
//! allows. All else that it cannot read is an error with the line and the remedy.
//!
//! ```
//! use tautline_tls::pem;
//!
//! let file = "\u{feff}-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE----------BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----";
//! assert_eq!(pem::certificates(file.as_bytes(), "chain.pem")?.len(), 2);
//!
//! let cut = pem::certificates(&file.as_bytes()[..50], "chain.pem").unwrap_err();
//! assert!(cut.to_string().contains("not valid PEM: line 1: BEGIN CERTIFICATE without an END"), "{cut}");
//! # Ok::<(), tautline_tls::Error>(())
//! ```

use crate::Error;
use core::fmt;
use zeroize::Zeroizing;

const DASHES: &[u8] = b"-----";
const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";

/// One section: what is between its markers.
#[derive(Clone)]
pub struct Section {
    /// The words of its markers, such as `CERTIFICATE`.
    pub label: String,
    /// The line of its first marker, from 1 on.
    pub line: usize,
    /// The decoded content; empty if a passphrase protects it.
    pub der: Zeroizing<Vec<u8>>,
    /// A passphrase protects it: PKCS#8 says so in its label, older forms in a header.
    pub is_encrypted: bool,
}

impl Section {
    /// Whether it is a certificate.
    #[must_use]
    pub fn is_certificate(&self) -> bool {
        matches!(self.label.as_str(), "CERTIFICATE" | "X509 CERTIFICATE")
    }

    /// Whether it holds certificates, but its label is not theirs, such as one with a typing error.
    fn hides_certificates(&self) -> bool {
        let label = self.label.to_ascii_uppercase();
        let is_known = self.is_certificate()
            || ["REQUEST", "ATTRIBUTE CERTIFICATE", "CRL", " KEY", " PARAMETERS"]
                .iter()
                .any(|end| self.label.ends_with(end));
        // A certificate of version 3 begins so, behind two lengths of two bytes.
        let is_one = self.der.get(8..13) == Some(&[0xa0, 3, 2, 1, 2]);
        let is_wrapped = ["PKCS7", "PKCS #7", "CMS"].iter().any(|begin| label.starts_with(begin));
        !is_known && (is_one || is_wrapped || label.contains("CERT"))
    }

    /// The section in PEM, in lines of 64 characters, with a line end behind each marker.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<Vec<u8>> {
        let label = if self.is_certificate() { "CERTIFICATE" } else { &self.label };
        let mut pem = Zeroizing::new(Vec::with_capacity(self.der.len() * 3 / 2 + 2 * label.len() + 64));
        for part in ["-----BEGIN ", label, "-----"] {
            pem.extend_from_slice(part.as_bytes());
        }
        encode(&self.der, &mut pem);
        for part in ["\n-----END ", label, "-----\n"] {
            pem.extend_from_slice(part.as_bytes());
        }
        pem
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Section").field("label", &self.label).field("line", &self.line).finish_non_exhaustive()
    }
}

/// A place that cannot be read: its line, and the reason with a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line, from 1 on.
    pub line: usize,
    /// The reason and the remedy.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

/// The certificates of a chain or of a list of authorities, at least one. Sections of other kinds are left out.
///
/// # Errors
/// [`Error::Config`] names `what` and the line of a section that cannot be read, or that no certificate was found.
pub fn certificates(pem: &[u8], what: &str) -> Result<Vec<Section>, Error> {
    let sections = read(pem, what)?;
    let labels: Vec<String> = sections.iter().map(|section| section.label.clone()).collect();
    let found: Vec<Section> = sections.into_iter().filter(Section::is_certificate).collect();
    if found.is_empty() {
        let holds = holds(pem, &labels, "openssl x509 -inform DER -in FILE -out FILE.pem");
        return Err(Error::Config(format!("{what}: no certificate found: expected PEM with BEGIN CERTIFICATE{holds}")));
    }
    Ok(found)
}

/// The first private key, in PKCS#8, PKCS#1 or SEC1. Sections of other kinds are left out.
///
/// # Errors
/// [`Error::Config`] names `what`, and the line of a section that cannot be read. It says so if there is no key. If a
/// passphrase protects the key, it says how to remove that.
pub fn private_key(pem: &[u8], what: &str) -> Result<Section, Error> {
    let sections = read(pem, what)?;
    let labels: Vec<String> = sections.iter().map(|section| section.label.clone()).collect();
    let is_key = |section: &Section| section.label == "PRIVATE KEY" || section.label.ends_with(" PRIVATE KEY");
    let Some(key) = sections.into_iter().find(is_key) else {
        let holds = holds(pem, &labels, "openssl pkey -inform DER -in FILE -out FILE.pem");
        return Err(Error::Config(format!("{what}: no private key found: expected PEM with BEGIN PRIVATE KEY{holds}")));
    };
    let (line, label) = (key.line, key.label.as_str());
    if key.is_encrypted {
        return Err(Error::Config(format!(
            "{what}: the private key is encrypted with a passphrase (line {line}, BEGIN {label}), and nobody can be asked for \
             it: remove the passphrase with `openssl pkey -in KEY -out KEY.plain`, and let only the server read that file"
        )));
    }
    match label {
        "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => Ok(key),
        _ => Err(Error::Config(format!(
            "{what}: line {line}: BEGIN {label} is no form that servers use: make an ECDSA, RSA or Ed25519 key in PKCS#8 \
             (BEGIN PRIVATE KEY)"
        ))),
    }
}

/// The label of an OCSP response, as OpenSSL has it.
pub const OCSP_RESPONSE: &str = "OCSP RESPONSE";

/// The OCSP response (DER) in a file with a certificate and its key; `None` if there is none.
#[must_use]
pub fn ocsp_response(pem: &[u8]) -> Option<Vec<u8>> {
    sections(pem).flatten().find(|section| section.label == OCSP_RESPONSE).map(|section| section.der.to_vec())
}

/// An OCSP response (DER) in PEM, for such a file.
#[must_use]
pub fn encode_ocsp_response(response: &[u8]) -> Vec<u8> {
    let der = Zeroizing::new(response.to_vec());
    Section { label: OCSP_RESPONSE.to_owned(), line: 1, der, is_encrypted: false }.to_pem().to_vec()
}

/// Gives each certificate of a list of authorities (DER) to `trust`, which returns whether it can use it. Returns the places
/// of those that cannot be used.
///
/// It is for lists that others keep, such as a system's: one bad entry must not take the others along.
pub fn trust_each(pem: &[u8], mut trust: impl FnMut(&[u8]) -> bool) -> Vec<Unreadable> {
    let unusable = |section: Result<Section, Unreadable>| match section {
        Ok(section) if !section.is_certificate() || trust(&section.der) => None,
        Ok(Section { line, .. }) => Some(Unreadable { line, why: "the certificate is malformed".to_owned() }),
        Err(unreadable) => Some(unreadable),
    };
    sections(pem).filter_map(unusable).collect()
}

/// All sections, or an error that names `what`.
fn read(pem: &[u8], what: &str) -> Result<Vec<Section>, Error> {
    let read: Result<Vec<_>, Unreadable> = sections(pem).collect();
    read.map_err(|why| Error::Config(format!("{what}: not valid PEM: {why}")))
}

/// The reason why a file has nothing of a kind.
fn holds(pem: &[u8], labels: &[String], convert: &str) -> String {
    if !labels.is_empty() {
        return format!("; it holds {}", labels.join(", "));
    }
    match pem {
        [] => "; it is empty".to_owned(),
        [0x30, 0x80..=0xff, ..] => {
            format!("; it is binary (DER): `{convert}` converts it, `openssl pkcs12` a PKCS#12 file")
        }
        _ => String::new(),
    }
}

/// The sections of a file in order. Behind a section that cannot be read, it goes on with the next one.
pub fn sections(pem: &[u8]) -> impl Iterator<Item = Result<Section, Unreadable>> {
    let mut reader = Reader { pem, at: if pem.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 }, line: 1, counted: 0 };
    core::iter::from_fn(move || reader.next())
}

struct Reader<'p> {
    pem: &'p [u8],
    at: usize,
    /// The line at `counted`.
    line: usize,
    counted: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<Result<Section, Unreadable>> {
        if self.at == 0 && (self.pem.starts_with(b"\xff\xfe") || self.pem.starts_with(b"\xfe\xff")) {
            self.at = self.pem.len();
            return Some(Err(Unreadable { line: 1, why: "the file is UTF-16: save it as ASCII or UTF-8".to_owned() }));
        }
        let rest = self.pem.get(self.at..)?;
        let begins = find(rest, BEGIN).unwrap_or(rest.len());
        if let Some(wrong) = self.broken_marker(begins) {
            return Some(Err(wrong));
        }
        if begins == rest.len() {
            self.at = self.pem.len();
            return None;
        }
        let start = self.at + begins;
        let line = self.line_of(start);
        let read = self.section(start, line);
        // Behind an error the search goes on at the next marker.
        self.at = self.at.max(start + BEGIN.len());
        Some(read.map_err(|(at, why)| Unreadable { line: self.line_of(at), why }))
    }

    /// Finds text before `self.at + len` that was meant to be a marker. Its section would be lost without a word.
    fn broken_marker(&mut self, len: usize) -> Option<Unreadable> {
        let outside = &self.pem[self.at..self.at + len];
        let words: [&[u8]; 8] = [
            b"BEGIN CERTIFICATE",
            b"END CERTIFICATE",
            b"BEGIN X509",
            b"END X509",
            b"CERTIFICATE--",
            b"PRIVATE KEY--",
            b"BEGIN TRUSTED",
            b"END TRUSTED",
        ];
        // In text for people, dashes stand before words as well, and fewer of them.
        let words_of_any_case: [&[u8]; 6] =
            [b"---BEGIN", b"---END", b"--BEGIN CERTIFICATE", b"--END CERTIFICATE", b"CERTIFICATE---", b"KEY---"];
        let upper = outside.to_ascii_uppercase();
        let places = words.iter().filter_map(|word| find(outside, word));
        let places = places.chain(words_of_any_case.iter().filter_map(|word| find(&upper, word)));
        let found = places.chain(lone_base64(outside)).min()?;
        let at = self.at + found;
        self.at += len;
        // Base64 may be a key's, and is not shown.
        let most = if outside[found..].starts_with(b"MI") { 4 } else { 60 };
        let text: Vec<u8> = self.line_around(at).trim_ascii().iter().copied().take(most).collect();
        let text = String::from_utf8_lossy(&text).trim().escape_debug().to_string();
        let why = format!(
            "`{text}` is no marker of PEM, or its other half is missing: a section lies between `-----BEGIN …-----` and \
             `-----END …-----`"
        );
        Some(Unreadable { line: self.line_of(at), why })
    }

    /// Reads the section whose first marker is at `start`. An error has the place.
    fn section(&mut self, start: usize, line: usize) -> Result<Section, (usize, String)> {
        let label_at = start + BEGIN.len();
        let behind = &self.pem[label_at..];
        let ends = find(behind, DASHES).filter(|&len| !behind[..len].contains(&b'\n'));
        let label = ends.and_then(|len| core::str::from_utf8(&behind[..len]).ok());
        let Some(label) = label.filter(|label| label.len() < 64) else {
            return Err((start, "the marker `-----BEGIN ` has no five dashes at its end".to_owned()));
        };
        let body_at = label_at + label.len() + DASHES.len();
        let body = &self.pem[body_at..];
        let len = find(body, DASHES).unwrap_or(body.len());
        let last = &body[len..];
        let expected = format!("-----END {label}-----");
        if !last.starts_with(expected.as_bytes()) {
            let (at, found) = (body_at + len, last.get(DASHES.len()..).unwrap_or_default());
            self.at = if last.starts_with(END) { at + END.len() } else { at };
            let found = find(found, DASHES).and_then(|len| core::str::from_utf8(&found[..len]).ok());
            let found = found.filter(|found| !found.contains('\n') && last.starts_with(END));
            return Err(match found {
                Some(found) => (at, format!("{found} ends BEGIN {label} of line {line}: the markers must match")),
                None => (start, format!("BEGIN {label} without an END: the file is cut, or a marker is damaged")),
            });
        }
        self.at = body_at + len + expected.len();
        if label == "TRUSTED CERTIFICATE" {
            let why = "BEGIN TRUSTED CERTIFICATE is a form of OpenSSL's own: `openssl x509 -in FILE -out FILE.pem` makes it \
                       a plain certificate";
            return Err((start, why.to_owned()));
        }
        let mut section = Section {
            label: label.to_owned(),
            line,
            der: Zeroizing::new(Vec::new()),
            is_encrypted: label.starts_with("ENCRYPTED ") || find(&body[..len], b"DEK-Info:").is_some(),
        };
        // Legacy encryption has headers, which are no base64.
        if !section.is_encrypted {
            section.der = decode(&body[..len]).map_err(|(at, why)| (body_at + at, format!("{why} (in {label})")))?;
        }
        if section.hides_certificates() {
            return Err((
                start,
                format!(
                    "BEGIN {label:?} is not read: write BEGIN CERTIFICATE and END CERTIFICATE, or convert PKCS#7 with \
                     `openssl pkcs7 -print_certs -in FILE -out FILE.pem`"
                ),
            ));
        }
        Ok(section)
    }

    /// The line that contains `at`.
    fn line_around(&self, at: usize) -> &[u8] {
        let start = self.pem[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |before| before + 1);
        self.pem[start..].split(|&byte| byte == b'\n').next().unwrap_or_default()
    }

    /// The number of the line that contains `at`. Lines end with LF, CRLF, or CR alone.
    fn line_of(&mut self, at: usize) -> usize {
        if at < self.counted {
            (self.line, self.counted) = (1, 0);
        }
        let between = &self.pem[self.counted..at];
        let lone = |(index, &byte): (usize, &u8)| byte == b'\r' && between.get(index + 1) != Some(&b'\n');
        self.line += between.iter().enumerate().filter(|&(index, byte)| *byte == b'\n' || lone((index, byte))).count();
        self.counted = at;
        self.line
    }
}

/// Finds a line that begins the base64 of a certificate or key, in text outside of sections.
fn lone_base64(outside: &[u8]) -> Option<usize> {
    let mut at = 0;
    for line in outside.split_inclusive(|&byte| byte == b'\n' || byte == b'\r') {
        let text = line.trim_ascii();
        if text.starts_with(b"MI")
            && text.len() >= 60
            && text.iter().all(|byte| *byte == b'=' || ALPHABET.contains(byte))
        {
            return Some(at + line.len() - line.trim_ascii_start().len());
        }
        at += line.len();
    }
    None
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes base64 with white space anywhere. An error has the place.
fn decode(text: &[u8]) -> Result<Zeroizing<Vec<u8>>, (usize, String)> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() * 3 / 4));
    let (mut bits, mut count, mut padding) = (0_u32, 0_u32, 0_u32);
    for (at, &byte) in text.iter().enumerate().filter(|(_, byte)| !byte.is_ascii_whitespace()) {
        if byte == b'=' {
            padding += 1;
            continue;
        }
        let value = ALPHABET.iter().zip(0..).find_map(|(&letter, value)| (letter == byte).then_some(value));
        let Some(value) = value.filter(|_| padding == 0) else {
            return Err((at, format!("`{}` is not base64 here", byte.escape_ascii())));
        };
        bits = bits << 6 | value;
        count += 1;
        if count % 4 == 0 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            bits = 0;
        }
    }
    let left = count % 4;
    if (left + padding) % 4 != 0 || padding > 2 || left == 1 {
        return Err((text.len(), "the base64 is incomplete: characters are missing".to_owned()));
    }
    if left > 1 {
        let bytes = (bits << (6 * (4 - left))).to_be_bytes();
        out.extend_from_slice(if left == 2 { &bytes[1..2] } else { &bytes[1..3] });
    }
    Ok(out)
}

/// Appends base64 in lines of 64 characters, each behind a line end.
fn encode(der: &[u8], out: &mut Vec<u8>) {
    for line in der.chunks(48) {
        out.push(b'\n');
        for group in line.chunks(3) {
            let bytes = [0, group[0], group.get(1).copied().unwrap_or(0), group.get(2).copied().unwrap_or(0)];
            let bits = u32::from_be_bytes(bytes);
            for place in 0..4 {
                let value = bits >> (18 - 6 * place) & 63;
                out.push(if place <= group.len() { ALPHABET[value as usize] } else { b'=' });
            }
        }
    }
}

#[cfg(test)]
mod tests;
