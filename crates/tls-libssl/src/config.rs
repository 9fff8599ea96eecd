//! Converts Tautline's configuration to the library's.

use crate::certificate::State;
use crate::groups::Groups;
use crate::signers::Signers;
use crate::sys::{Context, Identity, KeyKind, Library, Options, Refusal, RefusalKind, TicketKeys, Verify};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use tautline_tls::{Certificate, ClientAuth, ClientConfig, Error, KeyExchange, Roots, ServerConfig, Versions};

/// The strictness of the checks on certificates when a configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// An invalid certificate is only a warning, because the clock may be wrong.
    Start,
    /// Certificates must be valid now and their chains complete, because the server can keep the ones that it has.
    Reload,
}

/// Builds a server's configuration. `secrets` has connections keep their traffic secrets.
pub(crate) fn server(
    library: Library,
    config: &ServerConfig,
    tickets: Option<Arc<TicketKeys>>,
    strictness: Strictness,
    secrets: bool,
) -> Result<(Context, Signers), Error> {
    let count = config.certificates.len();
    if count == 0 {
        return Err(Error::Config("a server needs a certificate and its key; `taut cert` makes some".to_owned()));
    }
    refuse_callbacks(library, config.verify.is_some(), config.exporter)?;
    let mut identities = Vec::with_capacity(count);
    for (index, certificate) in config.certificates.iter().enumerate() {
        let what = what(certificate, index, count);
        let identity = load(library, certificate, &what, true)?;
        if !certificate.ocsp.is_empty() {
            return Err(library.flavour().capabilities().refusal("staple OCSP responses"));
        }
        if strictness == Strictness::Reload {
            check(&identity, &what)?;
        }
        identities.push(identity);
    }
    let most = ServerConfig::MOST_TICKETS;
    if tickets.is_some() && !(1..=most).contains(&config.tickets_per_handshake) {
        return Err(Error::Config(format!("tickets for each handshake: 1 to {most}")));
    }
    let name = library.flavour().name();
    if tickets.is_some() && config.versions == Versions::Tls13 && !library.flavour().capabilities().resumes_tls13 {
        log::warn!("{name} issues no tickets of TLS 1.3, so every handshake is a full one");
    }
    let groups = Groups::of(&identities);
    if !library.flavour().capabilities().several_keys && groups.members.iter().any(|members| members.len() > 1) {
        let what = "show certificates with keys of several kinds for one name";
        return Err(library.flavour().capabilities().refusal(what));
    }
    let (verify, roots) = match &config.client_auth {
        ClientAuth::None => (Verify::Never, None),
        ClientAuth::Required(roots) => (Verify::Required, Some(roots)),
        ClientAuth::Optional(roots) => (Verify::IfShown, Some(roots)),
        _ => return Err(Error::unknown("client certificates")),
    };
    let mut context = new_context(
        library,
        &Options {
            server: true,
            versions: versions(config.versions)?,
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

/// The name of a certificate in errors and in the log.
fn what(certificate: &Certificate, index: usize, count: usize) -> String {
    match (certificate.name.as_str(), count) {
        ("", 1) => "server certificate".to_owned(),
        ("", _) => format!("server certificate {} of {count}", index + 1),
        (name, _) => format!("server certificate {name}"),
    }
}

/// Checks a certificate as strictly as a reload does.
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
    Err(Error::Config(format!("{what}: {wrong}; the previous configuration stays in use")))
}

/// Builds a client's configuration. `secrets` has connections keep their traffic secrets.
pub(crate) fn client(library: Library, config: &ClientConfig, secrets: bool) -> Result<Context, Error> {
    refuse_callbacks(library, config.verify.is_some(), config.exporter)?;
    let own = config.certificate.as_ref().map(|own| load(library, own, "client certificate", false)).transpose()?;
    let mut context = new_context(
        library,
        &Options {
            server: false,
            versions: versions(config.versions)?,
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
        _ => return Err(Error::unknown("trusted roots")),
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

/// Parses `certificate` and checks that its key belongs to it. `what` is its name in errors and in the log.
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
    if identity.kind() == KeyKind::Ed25519 && !library.flavour().capabilities().ed25519 {
        return Err(no_ed25519(library, what));
    }
    warn_if_unusable(&identity, what, is_server);
    Ok(identity)
}

fn no_ed25519(library: Library, what: &str) -> Error {
    let what = format!("use Ed25519 keys ({what})");
    library.flavour().capabilities().refusal(&what)
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

/// Logs a reason for peers to reject a certificate. It is no error: the clock may be wrong, and a peer may not verify.
fn warn_if_unusable(identity: &Identity, what: &str, is_server: bool) {
    let validity = identity.validity();
    match validity.state {
        State::Valid if identity.fits(is_server) => {}
        State::Valid => log::warn!("{what} is meant for another use (extended key usage): peers will reject it"),
        State::Expired => log::warn!("{what} expired on {}: peers will reject it; renew it", validity.until),
        State::NotYet => {
            log::warn!("{what} is not valid before {}: peers will reject it until then", validity.from);
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

fn versions(versions: Versions) -> Result<(u16, u16), Error> {
    match versions {
        Versions::All => Ok((0x0303, 0x0304)),
        Versions::Tls13 => Ok((0x0304, 0x0304)),
        Versions::Tls12 => Ok((0x0303, 0x0303)),
        _ => Err(Error::unknown("versions of TLS")),
    }
}

/// Encodes protocol names as RFC 7301, section 3.1 does: each behind its length.
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

/// Refuses the settings that no library behind the table has.
fn refuse_callbacks(library: Library, verify: bool, exporter: bool) -> Result<(), Error> {
    let can = library.flavour().capabilities();
    if verify && !can.own_verifier {
        return Err(can.refusal("leave the decision about certificates to the program"));
    }
    if exporter && !can.exporter {
        return Err(can.refusal("export keying material"));
    }
    Ok(())
}

/// The file of the key log, if one is wanted; an error if the library cannot write one.
fn key_log_of(library: Library, wanted: bool) -> Result<Option<CString>, Error> {
    if wanted && !library.flavour().capabilities().key_log {
        return Err(library.flavour().capabilities().refusal("write a key log"));
    }
    Ok(key_log(wanted))
}

fn key_log(wanted: bool) -> Option<CString> {
    let file = std::env::var_os("SSLKEYLOGFILE").filter(|file: &OsString| wanted && !file.is_empty())?;
    CString::new(file.into_vec()).ok()
}
