//! From Tautline's configuration to the library's.

use crate::certificate::{Name, State};
use crate::signers::Signers;
use crate::sys::{Context, Identity, KeyKind, Library, Options, Refusal, RefusalKind, TicketKeys, Verify};
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use tautline_tls::{
    Capabilities, Certificate, ClientAuth, ClientConfig, Error, KeyExchange, Roots, ServerConfig, Versions,
};

/// What is asked of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demands {
    /// At the start there is nothing to fall back on, and the clock may be wrong.
    Start,
    /// They must be valid now, and their chains complete.
    Reload,
}

/// A server's configuration; `secrets` says whether connections keep their traffic secrets.
pub(crate) fn server(
    library: Library,
    config: &ServerConfig,
    tickets: Option<Arc<TicketKeys>>,
    demands: Demands,
    secrets: bool,
) -> Result<(Context, Signers), Error> {
    let count = config.certificates.len();
    if count == 0 {
        return Err(Error::Config("a server needs a certificate and its key; `taut cert` makes some".to_owned()));
    }
    let mut identities = Vec::with_capacity(count);
    for (index, certificate) in config.certificates.iter().enumerate() {
        let what = what(certificate, index, count);
        let identity = load(library, certificate, &what, true)?;
        if !certificate.ocsp.is_empty() {
            let name = library.flavour().name();
            return Err(Capabilities::refusal(name, "staple OCSP responses", |one| one.stapling));
        }
        if demands == Demands::Reload {
            check(&identity, &what)?;
        }
        identities.push(identity);
    }
    let most = ServerConfig::MOST_TICKETS;
    if tickets.is_some() && !(1..=most).contains(&config.tickets_per_handshake) {
        return Err(Error::Config(format!("tickets for each handshake: 1 to {most}")));
    }
    let name = library.flavour().name();
    if tickets.is_some() && config.versions == Versions::Tls13 && !can(library, |one| one.resumes_tls13) {
        log::warn!("{name} issues no tickets of TLS 1.3, so every handshake is a full one");
    }
    let groups = Groups::of(&identities);
    if !can(library, |one| one.several_keys) && groups.members.iter().any(|members| members.len() > 1) {
        let what = "show certificates with keys of several kinds for one name";
        return Err(Capabilities::refusal(name, what, |one| one.several_keys));
    }
    let (verify, roots) = match &config.client_auth {
        ClientAuth::None => (Verify::Never, None),
        ClientAuth::Required(roots) => (Verify::Required, Some(roots)),
        ClientAuth::Optional(roots) => (Verify::IfShown, Some(roots)),
    };
    let mut context = new_context(
        library,
        &Options {
            server: true,
            versions: versions(config.versions),
            verify,
            resume: false,
            tickets: tickets.map(|keys| (keys, config.tickets_per_handshake)),
            groups: groups.members.len(),
            classical: false,
            alpn: &protocols(&config.alpn)?,
            key_log: key_log_of(library, config.key_log)?,
            secrets,
        },
    )?;
    if let Some(roots) = roots {
        let what = "roots for client certificates";
        context.trust_pem(roots).map_err(|refusal| bad_certificate(library, &refusal, what))?;
    }
    for (group, members) in groups.members.iter().enumerate() {
        for &index in members {
            context.add(group, &identities[index]).map_err(|refusal| {
                Error::Config(format!("{}: {}", what(&config.certificates[index], index, count), refusal.reason))
            })?;
        }
    }
    let context = complete(context, &groups.names)?;
    Ok((context, Signers::new(identities, groups, config.versions != Versions::Tls12)))
}

/// What errors and the log call a certificate.
fn what(certificate: &Certificate, index: usize, count: usize) -> String {
    match (certificate.name.as_str(), count) {
        ("", 1) => "server certificate".to_owned(),
        ("", _) => format!("server certificate {} of {count}", index + 1),
        (name, _) => format!("server certificate {name}"),
    }
}

/// What a reload demands of a certificate.
fn check(identity: &Identity, what: &str) -> Result<(), Error> {
    let validity = identity.validity();
    let wrong = match validity.state {
        State::Expired => format!("it expired on {}", validity.until),
        State::NotYet => format!("it is not valid before {}", validity.from),
        State::Valid if !identity.is_linked() => {
            "it was not issued by any other certificate in its chain: put its issuer's there".to_owned()
        }
        State::Valid => return Ok(()),
    };
    Err(Error::Config(format!("{what}: {wrong}; what was there before stays in use")))
}

/// A client's configuration; `secrets` says whether connections keep their traffic secrets.
pub(crate) fn client(library: Library, config: &ClientConfig, secrets: bool) -> Result<Context, Error> {
    let own = config.certificate.as_ref().map(|own| load(library, own, "client certificate", false)).transpose()?;
    let mut context = new_context(
        library,
        &Options {
            server: false,
            versions: versions(config.versions),
            verify: if matches!(config.roots, Roots::DangerNone) { Verify::Never } else { Verify::Required },
            resume: !config.no_resumption,
            tickets: None,
            groups: 1,
            classical: config.key_exchange == KeyExchange::Classical,
            alpn: &protocols(&config.alpn)?,
            key_log: key_log_of(library, config.key_log)?,
            secrets,
        },
    )?;
    match &config.roots {
        Roots::Platform => trust_platform(&mut context)?,
        Roots::Pem(pem) => {
            context.trust_pem(pem).map_err(|refusal| bad_certificate(library, &refusal, "trusted roots"))?;
        }
        Roots::DangerNone => {}
    }
    if let Some(own) = own {
        context.add(0, &own).map_err(|refusal| Error::Config(format!("client certificate: {}", refusal.reason)))?;
    }
    complete(context, &[])
}

fn new_context(library: Library, options: &Options<'_>) -> Result<Context, Error> {
    Context::new(library, options).map_err(|refusal| match refusal.kind {
        RefusalKind::KeyLog => Error::Config("the file that SSLKEYLOGFILE names cannot be written".to_owned()),
        _ => Error::Library(format!("{}: {}", library.flavour().title(), refusal.reason)),
    })
}

fn complete(mut context: Context, names: &[(CString, u32)]) -> Result<Context, Error> {
    if context.complete(names) { Ok(context) } else { Err(Error::Library("no memory".to_owned())) }
}

/// Parses `certificate` and checks that its key belongs to it. `what` names it in errors and in the log.
fn load(library: Library, certificate: &Certificate, what: &str, is_server: bool) -> Result<Identity, Error> {
    let identity = Identity::new(library, &certificate.chain, &certificate.key).map_err(|refusal| {
        let reason = &refusal.reason;
        match refusal.kind {
            RefusalKind::NoKey => Error::Config(format!(
                "{what}: no private key found: expected PEM with BEGIN PRIVATE KEY (unencrypted; `openssl pkey` removes a \
                 passphrase)"
            )),
            RefusalKind::BadKey => Error::Config(format!(
                "{what}: its private key cannot be used ({reason}): make an ECDSA, RSA or Ed25519 key, unencrypted"
            )),
            RefusalKind::Mismatch => Error::Config(format!(
                "{what}: the private key does not belong to the certificate: give the key that the certificate was \
                 requested with, and put the end entity's certificate first in its chain"
            )),
            _ => bad_certificate(library, &refusal, what),
        }
    })?;
    if identity.kind() == KeyKind::Ed25519 && !can(library, |one| one.ed25519) {
        return Err(no_ed25519(library, what));
    }
    warn_if_unusable(&identity, what, is_server);
    Ok(identity)
}

/// Whether this library is known for something.
fn can(library: Library, what: impl Fn(&Capabilities) -> bool) -> bool {
    Capabilities::of(library.flavour().name()).is_none_or(what)
}

fn no_ed25519(library: Library, what: &str) -> Error {
    let what = format!("use Ed25519 keys ({what})");
    Capabilities::refusal(library.flavour().name(), &what, |one| one.ed25519)
}

fn bad_certificate(library: Library, refusal: &Refusal, what: &str) -> Error {
    let reason = &refusal.reason;
    match refusal.kind {
        RefusalKind::NoCertificate => {
            Error::Config(format!("{what}: no certificate found: expected PEM with BEGIN CERTIFICATE"))
        }
        RefusalKind::BadCertificate => Error::Config(format!("{what}: not valid PEM: {reason}")),
        RefusalKind::Ed25519 => no_ed25519(library, what),
        _ => Error::Library(format!("{what}: {reason}")),
    }
}

/// Logs what peers will refuse. Not an error: the clock may be wrong, and a peer may not check.
fn warn_if_unusable(identity: &Identity, what: &str, is_server: bool) {
    let validity = identity.validity();
    match validity.state {
        State::Valid if identity.fits(is_server) => {}
        State::Valid => log::warn!("{what} is meant for another use (extended key usage): peers will refuse it"),
        State::Expired => log::warn!("{what} expired on {}: peers will refuse it; renew it", validity.until),
        State::NotYet => {
            log::warn!("{what} is not valid before {}: peers will refuse it until then", validity.from);
        }
    }
}

fn trust_platform(context: &mut Context) -> Result<(), Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut trusted = 0_usize;
    for certificate in &found.certs {
        if context.trust_der(certificate) {
            trusted += 1;
        }
    }
    if trusted == 0 {
        let reason = found.errors.first().map_or_else(|| "it is empty".to_owned(), ToString::to_string);
        return Err(Error::Config(format!(
            "no trusted authority in the platform's trust store ({reason}): install the system's CA certificates, set \
             SSL_CERT_FILE, or give the roots to trust"
        )));
    }
    Ok(())
}

const fn versions(versions: Versions) -> (u16, u16) {
    match versions {
        Versions::All => (0x0303, 0x0304),
        Versions::Tls13 => (0x0304, 0x0304),
        Versions::Tls12 => (0x0303, 0x0303),
    }
}

/// RFC 7301, section 3.1: each name behind its length.
fn protocols(names: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    let mut list = Vec::new();
    for name in names {
        let len = u8::try_from(name.len())
            .ok()
            .filter(|&len| len > 0)
            .ok_or_else(|| Error::Config("application protocols (ALPN): a name has 1 to 255 bytes".to_owned()))?;
        list.push(len);
        list.extend_from_slice(name);
    }
    Ok(list)
}

/// Refuses what this library has no way to do.
fn key_log_of(library: Library, wanted: bool) -> Result<Option<CString>, Error> {
    let name = library.flavour().name();
    if wanted && !can(library, |one| one.key_log) {
        return Err(Capabilities::refusal(name, "write a key log", |one| one.key_log));
    }
    Ok(key_log(wanted))
}

fn key_log(wanted: bool) -> Option<CString> {
    let file = std::env::var_os("SSLKEYLOGFILE").filter(|file: &OsString| wanted && !file.is_empty())?;
    CString::new(file.into_vec()).ok()
}

/// Which certificates stand for which names.
pub(crate) struct Groups {
    /// Indices of certificates, the preferred ones first, one of each kind of key. The first group is for clients that name
    /// no host, or none of ours: the first certificate and those for just the same names.
    pub(crate) members: Vec<Vec<usize>>,
    /// Exact names, and wildcards as `*.example.com`.
    pub(crate) names: Vec<(CString, u32)>,
}

impl Groups {
    fn of(identities: &[Identity]) -> Self {
        let kinds: Vec<_> = identities.iter().map(Identity::kind).collect();
        let names: Vec<_> = identities.iter().map(|identity| dns_names(&identity.names())).collect();
        Self::by_names(&kinds, &names)
    }

    fn by_names(kinds: &[KeyKind], own_names: &[Vec<String>]) -> Self {
        let mut by_preference: Vec<_> = (0..kinds.len()).collect();
        by_preference.sort_by_key(|&index| kinds[index]);
        let one_of_each = |candidates: Vec<usize>| {
            let mut members: Vec<usize> = Vec::new();
            for index in candidates {
                if members.iter().all(|&member| kinds[member] != kinds[index]) {
                    members.push(index);
                }
            }
            members
        };
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &index in &by_preference {
            for name in &own_names[index] {
                by_name.entry(name).or_default().push(index);
            }
        }
        let fallback =
            by_preference.into_iter().filter(|&index| index == 0 || own_names[index] == own_names[0]).collect();
        let mut members = vec![one_of_each(fallback)];
        let mut names = Vec::new();
        for (name, candidates) in by_name {
            let wanted = one_of_each(candidates);
            let group = members.iter().position(|members| *members == wanted).unwrap_or_else(|| {
                members.push(wanted);
                members.len() - 1
            });
            if let (Ok(name), Ok(group)) = (CString::new(name), u32::try_from(group)) {
                names.push((name, group));
            }
        }
        Self { members, names }
    }
}

fn dns_names(names: &[Name]) -> Vec<String> {
    let mut names: Vec<_> = names
        .iter()
        .filter_map(|name| match name {
            Name::Dns(name) => Some(name.clone()),
            Name::Ip(_) => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::{Groups, KeyKind};

    #[test]
    fn groups_by_name_and_prefers_cheap_keys() {
        use KeyKind::{Ecdsa, Ed25519, Rsa};
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let groups = Groups::by_names(
            &[Rsa, Ecdsa, Rsa, Ed25519, Ecdsa],
            &[names(&["a"]), names(&["a"]), names(&["*.b", "c"]), names(&["c"]), names(&["c"])],
        );
        assert_eq!(groups.members, [vec![1, 0], vec![2], vec![4, 3, 2]]);
        let named: Vec<_> = groups.names.iter().map(|(name, group)| (name.to_str().unwrap(), *group)).collect();
        assert_eq!(named, [("*.b", 1), ("a", 0), ("c", 2)]);
    }
}
