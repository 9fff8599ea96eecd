use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use std::fmt;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// The directory of Let's Encrypt, the default.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Most names of one certificate: the limit of Let's Encrypt.
const MOST_NAMES: usize = 100;

/// The certificate that a server wants, and the authority that is to issue it.
///
/// ```
/// use tautline_acme::AcmeConfig;
///
/// let config = AcmeConfig::new(["example.com", "www.example.com"], "/var/lib/app/acme")?
///     .with_contacts(["mailto:operator@example.com"])
///     .with_profile("shortlived");
/// assert_eq!(config.names(), ["example.com", "www.example.com"]);
/// assert!(AcmeConfig::new(["*.example.com"], "/var/lib/app/acme").unwrap_err().contains("DNS-01"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug)]
pub struct AcmeConfig {
    pub(crate) names: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) directory: String,
    pub(crate) contacts: Vec<String>,
    pub(crate) roots: Option<Vec<u8>>,
    pub(crate) binding: Option<AccountBinding>,
    pub(crate) profile: Option<String>,
    pub(crate) must_staple: bool,
    pub(crate) tls_alpn: bool,
    pub(crate) http: bool,
    pub(crate) stapling: bool,
}

/// The account at an authority to which a new ACME account is bound (RFC 8555, section 7.3.4).
#[derive(Clone)]
pub struct AccountBinding {
    pub(crate) id: String,
    pub(crate) key: Zeroizing<Vec<u8>>,
}

impl AcmeConfig {
    /// One certificate for these host names, by Let's Encrypt, kept in this folder.
    ///
    /// # Errors
    /// The reason why a name cannot be validated: it is an address, has a wildcard, or has letters beyond ASCII.
    pub fn new<N: AsRef<str>>(names: impl IntoIterator<Item = N>, folder: impl Into<PathBuf>) -> Result<Self, String> {
        let mut all: Vec<String> = Vec::new();
        for name in names {
            let name = host_name(name.as_ref())?;
            if !all.contains(&name) {
                all.push(name);
            }
        }
        if all.is_empty() || all.len() > MOST_NAMES {
            return Err(format!("{} host names for one certificate: give 1 to {MOST_NAMES}", all.len()));
        }
        Ok(Self {
            names: all,
            folder: folder.into(),
            directory: LETS_ENCRYPT.to_owned(),
            contacts: Vec::new(),
            roots: None,
            binding: None,
            profile: None,
            must_staple: false,
            tls_alpn: true,
            http: false,
            stapling: true,
        })
    }

    /// With the directory of another authority.
    ///
    /// # Errors
    /// The reason why this is no directory: its URL begins with `https://`.
    pub fn with_directory(mut self, url: impl Into<String>) -> Result<Self, String> {
        let url = url.into();
        let parsed: http::Uri = url.parse().map_err(|error| format!("{url:?} is no URL: {error}"))?;
        if parsed.scheme_str() != Some("https") || parsed.host().is_none() {
            return Err(format!("{url:?}: the directory of an authority is a URL that begins with https://"));
        }
        self.directory = url;
        Ok(self)
    }

    /// With addresses of the operator, for messages of the authority: `mailto:…`. An address without scheme is one for mail.
    #[must_use]
    pub fn with_contacts<C: AsRef<str>>(mut self, contacts: impl IntoIterator<Item = C>) -> Self {
        let with_scheme = |contact: &str| match contact.split_once(':') {
            Some(_) => contact.to_owned(),
            None => format!("mailto:{contact}"),
        };
        self.contacts = contacts.into_iter().map(|contact| with_scheme(contact.as_ref())).collect();
        self
    }

    /// With these roots in PEM for the authority's own server, instead of the platform's.
    #[must_use]
    pub fn with_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// With an account at the authority to which a new account is bound.
    #[must_use]
    pub fn with_binding(mut self, binding: AccountBinding) -> Self {
        self.binding = Some(binding);
        self
    }

    /// With a profile of the authority, such as `shortlived` for certificates of six days.
    #[must_use]
    pub fn with_profile(mut self, profile: impl Into<String>) -> Self {
        self.profile = Some(profile.into());
        self
    }

    /// Orders a certificate that clients reject without an OCSP response ("must-staple", RFC 7633); false at first.
    ///
    /// It serves only with a response. The authority must have a responder, and the engine must staple. Let's Encrypt has none
    /// since 2025, and refuses such orders.
    #[must_use]
    pub const fn with_must_staple(mut self, must_staple: bool) -> Self {
        self.must_staple = must_staple;
        self
    }

    /// Which challenges the server can answer: TLS-ALPN-01 at its port 443, and HTTP-01 at port 80.
    ///
    /// If both, HTTP-01 is first, and a failed order is followed by one with the other kind.
    #[must_use]
    pub const fn with_challenges(mut self, tls_alpn: bool, http: bool) -> Self {
        (self.tls_alpn, self.http) = (tls_alpn, http);
        self
    }

    /// Whether the server can staple OCSP responses, as most engines can; true at first.
    ///
    /// If it cannot, none is fetched, and a certificate that must be stapled is refused.
    #[must_use]
    pub const fn with_stapling(mut self, stapling: bool) -> Self {
        self.stapling = stapling;
        self
    }

    /// The host names, in lower case.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The SHA-256 digest, in hexadecimal, of the options beside names and directory on which the success of an order depends.
    pub(crate) fn digest(&self) -> String {
        let Self { contacts, roots, binding, profile, .. } = self;
        let mut digest = Context::new(&SHA256);
        let mut add = |part: Option<&[u8]>| {
            digest.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            digest.update(part.unwrap_or_default());
        };
        add(roots.as_deref());
        add(binding.as_ref().map(|binding| binding.id.as_bytes()));
        add(binding.as_ref().map(|binding| binding.key.as_slice()));
        add(profile.as_ref().map(String::as_bytes));
        add(Some(&[self.must_staple, self.tls_alpn, self.http, self.stapling].map(u8::from)));
        contacts.iter().for_each(|contact| add(Some(contact.as_bytes())));
        digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl AccountBinding {
    /// An account by its key identifier, and its HMAC key in base64url, as authorities give them.
    ///
    /// # Errors
    /// The reason why this is no such key. The key is not part of it.
    pub fn new(id: impl Into<String>, key: &str) -> Result<Self, String> {
        let (id, key) = (id.into(), key.trim_end_matches('='));
        let key = BASE64_URL_SAFE_NO_PAD.decode(key).map(Zeroizing::new);
        match key {
            Ok(key) if !key.is_empty() && !id.is_empty() => Ok(Self { id, key }),
            _ => {
                Err("an account binding is an identifier and a key in base64url, as the authority gives them"
                    .to_owned())
            }
        }
    }
}

impl fmt::Debug for AccountBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountBinding").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A host name in lower case that HTTP-01 and TLS-ALPN-01 can validate.
fn host_name(name: &str) -> Result<String, String> {
    let lower = name.trim_end_matches('.').to_ascii_lowercase();
    if lower.starts_with("*.") {
        return Err(format!(
            "{name}: a certificate for all names of a domain needs the challenge DNS-01, which is not built in; name each host"
        ));
    }
    if !lower.is_ascii() {
        return Err(format!("{name}: write the name in its ASCII form, which begins with xn--"));
    }
    if lower.parse::<std::net::IpAddr>().is_ok() || lower.starts_with('[') {
        return Err(format!("{name}: this is an address; certificates are ordered for host names"));
    }
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_known)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if lower.len() > 253 || !lower.contains('.') || !lower.split('.').all(is_label) {
        return Err(format!("{name}: this is no host name of the public internet, such as www.example.com"));
    }
    Ok(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_host_names() {
        let config = AcmeConfig::new(["One.Example.", "two.example", "one.example"], "/f").unwrap();
        assert_eq!(config.names(), ["one.example", "two.example"]);
        for (name, word) in [
            ("*.example.com", "DNS-01"),
            ("bücher.example", "xn--"),
            ("192.0.2.1", "address"),
            ("[2001:db8::1]", "address"),
            ("localhost", "host name"),
            ("a..example", "host name"),
            ("-a.example", "host name"),
            ("a b.example", "host name"),
            ("", "host name"),
        ] {
            let error = AcmeConfig::new([name], "/f").unwrap_err();
            assert!(error.contains(word), "{name}: {error}");
        }
        assert!(AcmeConfig::new(Vec::<String>::new(), "/f").is_err());
        let many: Vec<String> = (0..101).map(|number| format!("n{number}.example")).collect();
        assert!(AcmeConfig::new(&many[..100], "/f").is_ok() && AcmeConfig::new(&many, "/f").is_err());
    }

    #[test]
    fn a_directory_is_reached_over_https() {
        let config = || AcmeConfig::new(["one.example"], "/f").unwrap();
        assert!(config().with_directory("https://localhost:14000/dir").is_ok());
        for url in ["http://localhost/dir", "localhost", "", "https://"] {
            assert!(config().with_directory(url).is_err(), "{url}");
        }
        let config = config().with_contacts(["a@one.example", "mailto:b@one.example"]);
        assert_eq!(config.contacts, ["mailto:a@one.example", "mailto:b@one.example"]);
    }

    #[test]
    fn a_binding_hides_its_key() {
        let binding = AccountBinding::new("kid-1", "c2VjcmV0").unwrap();
        assert_eq!(binding.key.as_slice(), b"secret");
        assert!(!format!("{binding:?}").contains("115"));
        for (id, key) in [("", "c2VjcmV0"), ("kid-1", ""), ("kid-1", "not base64!")] {
            assert!(AccountBinding::new(id, key).is_err());
        }
    }
}
