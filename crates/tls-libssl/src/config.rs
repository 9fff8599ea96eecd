//! Converts Tautline's configuration to the library's.

use crate::certificate::State;
use crate::groups::Groups;
use crate::signers::Signers;
use crate::sys::{Context, Identity, KeyKind, Library, Options, Refusal, RefusalKind, TicketKeys, Verify, ticket_keys};
use std::env;
use std::ffi::{CString, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tautline_tls::chain::{Strictness, missing_issuer};
use tautline_tls::fields::Fields;
use tautline_tls::ocsp::{Stapling, stapling};
use tautline_tls::{
    Certificate, ClientAuth, ClientConfig, Error, KeyExchange, Roots, ServerConfig, Tickets, Versions, key_log_flaw,
    pem, trust_named,
};
use tautline_tls_tickets::{Builder, Material};

/// Makes a server's contexts and its ticket keys.
pub(crate) struct Serving {
    pub(crate) library: Library,
    /// Whether connections keep their traffic secrets.
    pub(crate) secrets: bool,
}

/// The parts of a server that a connection which begins now uses.
pub(crate) struct ServerContext {
    pub(crate) context: Arc<Context>,
    pub(crate) signers: Signers,
}

impl Builder for Serving {
    type Config = ServerContext;
    type Key = Material;

    fn ticketer(&self, tickets: &Tickets) -> Result<Option<TicketKeys>, Error> {
        ticket_keys(self.library, tickets)
    }

    fn config(
        &self,
        config: &ServerConfig,
        tickets: Option<Arc<TicketKeys>>,
        strictness: Strictness,
    ) -> Result<ServerContext, Error> {
        server(self.library, config, tickets, strictness, self.secrets)
    }
}

/// Builds a server's configuration. `secrets` has connections keep their traffic secrets.
fn server(
    library: Library,
    config: &ServerConfig,
    tickets: Option<Arc<TicketKeys>>,
    strictness: Strictness,
    secrets: bool,
) -> Result<ServerContext, Error> {
    let count = config.certificates.len();
    if count == 0 {
        return Err(Error::Config("a server needs a certificate and its key; `taut cert` makes some".to_owned()));
    }
    refuse_callbacks(library, config.verify.is_some(), config.exporter)?;
    if config.challenges.is_some() {
        return Err(library.flavour().capabilities().refusal("answer challenges of TLS-ALPN-01"));
    }
    if config.certificates.iter().any(|certificate| certificate.client_rule.is_some()) {
        return Err(library.flavour().capabilities().refusal("have a rule about clients for one certificate"));
    }
    let mut identities = Vec::with_capacity(count);
    for (index, certificate) in config.certificates.iter().enumerate() {
        let what = what(certificate, index, count);
        let sections = pem::certificates(&certificate.chain, &what)?;
        let mut identity = load(library, certificate, &sections, &what)?;
        staple(library, &mut identity, certificate, &sections, strictness, &what)?;
        if strictness == Strictness::Reload {
            check(&identity, &what)?;
        }
        let lacking = || {
            let chain = sections.iter().map(|section| &section.der);
            missing_issuer(chain, strictness, || rustls_native_certs::load_native_certs().certs)
        };
        if !warn_if_unusable(&identity, &what, true)
            && let Some(why) = lacking()
        {
            log::warn!("{what} {why}");
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
        let roots = certificates(roots, what)?;
        context.trust_pem(&roots).map_err(|refusal| bad_certificate(library, &refusal, what))?;
    }
    for (group, members) in groups.members.iter().enumerate() {
        for &index in members {
            context.add(group, &identities[index]).map_err(|refusal| {
                Error::Config(format!("{}: {}", what(&config.certificates[index], index, count), refusal.reason))
            })?;
        }
    }
    let context = complete(context, &groups.names)?;
    let signers = Signers::new(identities, groups, config.versions != Versions::Tls12);
    Ok(ServerContext { context: Arc::new(context), signers })
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
    let own = config.certificate.as_ref().map(|own| {
        let what = "client certificate";
        let identity = load(library, own, &pem::certificates(&own.chain, what)?, what)?;
        warn_if_unusable(&identity, what, false);
        Ok::<_, Error>(identity)
    });
    let own = own.transpose()?;
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
            let roots = certificates(pem, "trusted roots")?;
            context.trust_pem(&roots).map_err(|refusal| bad_certificate(library, &refusal, "trusted roots"))?;
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

/// Parses `certificate`, whose chain is `sections`, and checks that its key belongs to it. `what` is its name in errors.
fn load(library: Library, certificate: &Certificate, sections: &[pem::Section], what: &str) -> Result<Identity, Error> {
    let chain = to_pem(sections);
    let key = pem::private_key(&certificate.key, what)?.to_pem();
    let identity = Identity::new(library, &chain, &key).map_err(|refusal| {
        let reason = &refusal.reason;
        match refusal.kind {
            RefusalKind::NoKey => Error::Config(format!(
                "{what}: no private key found: expected PEM with BEGIN PRIVATE KEY (unencrypted; `openssl pkey` removes a \
                 passphrase)"
            )),
            RefusalKind::BadKey => Error::Config(format!(
                "{what}: its private key cannot be used ({reason}): make an ECDSA, RSA or Ed25519 key"
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
    Ok(identity)
}

/// Has the identity go with the OCSP response of `certificate`, if that has a usable one. [`stapling`] says what is an error.
fn staple(
    library: Library,
    identity: &mut Identity,
    certificate: &Certificate,
    sections: &[pem::Section],
    strictness: Strictness,
    what: &str,
) -> Result<(), Error> {
    if certificate.ocsp.is_empty() {
        return Ok(());
    }
    if !library.flavour().capabilities().stapling {
        return Err(library.flavour().capabilities().refusal("staple OCSP responses"));
    }
    let serial = sections.first().and_then(|leaf| Fields::of(&leaf.der)).map(|leaf| leaf.serial()).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match stapling(&certificate.ocsp, serial, what, strictness, now)? {
        Stapling::Until(until) if identity.staple(&certificate.ocsp, until) => Ok(()),
        Stapling::Until(_) => Err(Error::Library("no memory".to_owned())),
        Stapling::Not(why) => {
            log::warn!("{what}: no OCSP response is sent: {why}");
            Ok(())
        }
    }
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

/// Logs a reason for peers to reject a certificate, and returns whether there is one. It is no error: the clock may be wrong, and
/// a peer may not verify.
fn warn_if_unusable(identity: &Identity, what: &str, is_server: bool) -> bool {
    let validity = identity.validity();
    match validity.state {
        State::Valid if identity.fits(is_server) => return false,
        State::Valid => log::warn!("{what} is meant for another use (extended key usage): peers will reject it"),
        State::Expired => log::warn!("{what} expired on {}: peers will reject it; renew it", validity.until),
        State::NotYet => {
            log::warn!("{what} is not valid before {}: peers will reject it until then", validity.from);
        }
    }
    true
}

/// The certificates in `pem`, in the form that every library reads whole.
fn certificates(pem: &[u8], what: &str) -> Result<Vec<u8>, Error> {
    Ok(to_pem(&pem::certificates(pem, what)?))
}

fn to_pem(sections: &[pem::Section]) -> Vec<u8> {
    sections.iter().flat_map(|section| section.to_pem().to_vec()).collect()
}

/// Trusts the authorities of the platform's store, or of the file and the folders that the environment names instead.
fn trust_platform(context: &mut Context) -> Result<(), Error> {
    let mut trusted = 0_usize;
    let mut add = |der: &[u8]| {
        let is_usable = context.trust_der(der);
        trusted += usize::from(is_usable);
        is_usable
    };
    let named = trust_named(&mut add);
    let is_named = named.is_some();
    let reasons = named.unwrap_or_else(|| {
        let found = rustls_native_certs::load_native_certs();
        found.certs.iter().for_each(|certificate| _ = add(certificate));
        found.errors.iter().map(ToString::to_string).collect()
    });
    if is_named {
        reasons.iter().for_each(|reason| log::warn!("{reason}"));
    }
    if trusted == 0 {
        let reason = reasons.first().map_or("it is empty", String::as_str);
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
    let file = env::var_os("SSLKEYLOGFILE").filter(|file: &OsString| wanted && !file.is_empty())?;
    let facts = fs::metadata(&file).ok().filter(fs::Metadata::is_file);
    if let Some(why) = facts.and_then(|facts| key_log_flaw(Path::new(&file), facts.permissions().mode())) {
        log::warn!("{why}");
    }
    CString::new(file.into_vec()).ok()
}
