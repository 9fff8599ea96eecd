//! `--acme`: certificates that the server orders and renews itself.

use super::listen::{Listen, listen};
use super::pages::are_local;
use super::privilege::PrivilegeArguments;
use crate::dev_cert::DevCert;
use crate::failure::Failure;
use crate::local::is_loopback;
use crate::output;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use tautline::acme::{AccountBinding, Acme, AcmeConfig, HttpChallenges, LETS_ENCRYPT, Renewal, Report};
use tautline::layers::tls::der::date;
use tautline::{Address, Admin, PreparedServer, Reloader, Server, ServerConfig, ServerFiles, Tls, TlsEngine};
use tautline_lab::loops;

/// Certificates by themselves (ACME).
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Certificates by themselves")]
pub(super) struct AcmeArguments {
    /// Order and renew one certificate for these host names by ACME (Let's Encrypt), instead of --cert. Each name must lead to
    /// this server: at port 443, or at port 80 with --acme-http. No wildcards, which need DNS-01. You accept the authority's
    /// terms of service by this option.
    #[arg(long, value_name = "DOMAIN", num_args = 1.., conflicts_with_all = ["cert", "key", "ocsp", "plain"])]
    acme: Vec<String>,
    /// Directory of another authority.
    #[arg(long, value_name = "URL", default_value = LETS_ENCRYPT, hide_default_value = true, requires = "acme")]
    acme_directory: String,
    /// Address for messages of the authority: NAME@HOST or mailto:NAME@HOST. May be repeated.
    #[arg(long, value_name = "ADDR", requires = "acme")]
    acme_contact: Vec<String>,
    /// Folder of the account, the certificate and the order in progress; several servers may share it, and one of them orders.
    /// Default: $STATE_DIRECTORY/acme of systemd, or acme beside the development certificate.
    #[arg(long, value_name = "DIR", requires = "acme")]
    acme_folder: Option<PathBuf>,
    /// Roots that the authority's own server is verified by (PEM), instead of those of the system.
    #[arg(long, value_name = "FILE", requires = "acme")]
    acme_ca: Option<PathBuf>,
    /// File with the account at the authority to which the ACME account is bound: the identifier, a space, and the key in
    /// base64url, as the authority gives them.
    #[arg(long, value_name = "FILE", requires = "acme")]
    acme_eab: Option<PathBuf>,
    /// Profile of the certificate, such as shortlived at Let's Encrypt for six days.
    #[arg(long, value_name = "NAME", requires = "acme")]
    acme_profile: Option<String>,
    /// Order a certificate that clients reject without an OCSP response (RFC 7633), which is fetched and stapled. Let's Encrypt
    /// issues none.
    #[arg(long, requires = "acme")]
    acme_must_staple: bool,
    /// Also answer at port 80 (HTTP-01), or at this address, and redirect requests for these names to https. Engines other than fused
    /// and rustls need it.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = ":80", value_parser = listen, requires = "acme")]
    acme_http: Option<Listen>,
}

/// The certificate of a server, before its thread starts.
pub(super) struct Service {
    acme: Acme,
    /// Addresses for HTTP-01.
    http: Vec<Address>,
}

/// A thread that renews, until this is dropped.
pub(super) struct Renewing {
    _renewal: Renewal,
}

impl AcmeArguments {
    pub(super) const fn is_on(&self) -> bool {
        !self.acme.is_empty()
    }

    /// Takes what a configuration orders, where the options order nothing.
    #[cfg(feature = "proxy")]
    pub(super) fn take(&mut self, ordered: &tautline_proxy::plan::Ordered) -> Result<(), Failure> {
        if self.is_on() {
            return Err(Failure::usage("[acme] is in the configuration: leave out --acme"));
        }
        let http = ordered.http.as_deref().map(listen).transpose();
        self.acme_http = http.map_err(|how| Failure::usage(format!("[acme] http: {how}")))?;
        self.acme.clone_from(&ordered.names);
        ordered.directory.iter().for_each(|directory| self.acme_directory.clone_from(directory));
        self.acme_contact.clone_from(&ordered.contacts);
        self.acme_folder.clone_from(&ordered.folder);
        self.acme_ca.clone_from(&ordered.ca);
        self.acme_eab.clone_from(&ordered.eab);
        self.acme_profile.clone_from(&ordered.profile);
        self.acme_must_staple = ordered.must_staple;
        Ok(())
    }

    /// The folder; `None` without --acme.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.is_on().then(|| self.acme_folder.clone().or_else(usual_folder)).flatten()
    }

    /// Opens the folder as the user that the server is to run as; `None` without --acme.
    pub(super) fn open(&self, engine: TlsEngine, privilege: &PrivilegeArguments) -> Result<Option<Service>, Failure> {
        if !self.is_on() {
            return Ok(None);
        }
        let config = self.config(engine)?;
        let opened = privilege.as_user(|| Acme::open(config))?;
        let acme = opened.map_err(|error| Failure::usage(format!("--acme: {error}")))?;
        if let Ok(report) = Report::of(acme.folder()) {
            refuse_unstapled(&report, engine, acme.folder())?;
        }
        let folder = acme.folder().display();
        match (acme.status().expiry, Report::of(acme.folder())) {
            (Some(expiry), Ok(report)) => {
                let (names, end) = (report.names.join(", "), date(expiry.as_secs()));
                output::note(format_args!("the certificate for {names} in {folder} is valid until {end}"));
            }
            _ => {
                let names = acme.names().join(", ");
                output::note(format_args!("no certificate for {names} in {folder} yet: one is ordered"));
            }
        }
        let http = self.acme_http.clone().map(|Listen(addresses)| addresses).unwrap_or_default();
        Ok(Some(Service { acme, http }))
    }

    /// Looks at the options and the folder, which stays as it is.
    pub(super) fn check(&self, engine: TlsEngine) -> Result<(), Failure> {
        if !self.is_on() {
            return Ok(());
        }
        let config = self.config(engine)?;
        let Some(folder) = self.folder() else { return Ok(()) };
        let shown = folder.display();
        if !folder.exists() {
            let parent = folder.ancestors().skip(1).find(|parent| parent.exists());
            let refused = |error| Failure::usage(format!("--acme-folder: cannot make {shown}: {error}"));
            let parent = parent.unwrap_or_else(|| Path::new("."));
            // The effective user counts, which is that of --user.
            let may = accessat(CWD, parent, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
            // A kernel older than Linux 5.8 cannot tell.
            return if may == Err(Errno::NOSYS) { Ok(()) } else { may.map_err(refused) };
        }
        let report = Report::of(&folder)
            .map_err(|error| Failure::usage(format!("--acme-folder: cannot read {shown}: {error}")))?;
        refuse_unstapled(&report, engine, &folder)?;
        if let Some((left, last)) = Report::pause(&config) {
            let left = left.as_secs();
            output::note(format_args!(
                "--acme: a server waits {left} seconds before its next order; remove {shown}/failures.json to order at once. \
                 The latest failure: {last}"
            ));
        }
        match report.unusable {
            Some(why) => Err(Failure::usage(format!(
                "--acme-folder: certificate.pem in {shown} cannot be used: {why}; remove it, and a new one is ordered"
            ))),
            None => Ok(()),
        }
    }

    /// Refuses an address of the server that HTTP-01 is to have, and warns if no authority reaches any.
    pub(super) fn check_addresses(&self, addresses: &[Address]) -> Result<(), Failure> {
        if !self.is_on() {
            return Ok(());
        }
        let http = self.acme_http.iter().flat_map(|Listen(addresses)| addresses);
        if let Some(twice) = http.clone().find(|one| addresses.iter().any(|other| are_one(one, other))) {
            return Err(Failure::usage(format!(
                "--acme-http: the server itself listens at {twice} (--listen): name another address, such as :80"
            )));
        }
        if are_local(addresses) && http.clone().all(|one| are_local([one])) && !is_near(&self.acme_directory) {
            let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            log::warn!("--acme: no authority reaches {}: --listen :443", all.join(", "));
        }
        Ok(())
    }

    fn config(&self, engine: TlsEngine) -> Result<AcmeConfig, Failure> {
        let usage = |why: String| Failure::usage(format!("--acme: {why}"));
        let folder =
            self.folder().ok_or_else(|| usage("no home folder for certificates; pass --acme-folder".to_owned()))?;
        let can = engine.capabilities();
        let (can_tls, http) = (can.challenges, self.acme_http.is_some());
        if !can_tls && !http {
            return Err(usage(format!(
                "the TLS engine {engine} cannot answer TLS-ALPN-01: add --acme-http, so that the authority can use port 80 \
                 (HTTP-01), or take --tls fused"
            )));
        }
        self.check_must_staple(engine)?;
        let mut config = AcmeConfig::new(&self.acme, folder).map_err(usage)?.with_challenges(can_tls, http);
        config = config.with_must_staple(self.acme_must_staple);
        config = config.with_stapling(can.stapling);
        config =
            config.with_directory(&self.acme_directory).map_err(|why| usage(format!("--acme-directory: {why}")))?;
        config = config.with_contacts(&self.acme_contact);
        if let Some(file) = &self.acme_ca {
            config = config.with_roots(crate::files::read(file, "roots of --acme-ca")?);
        }
        if let Some(file) = &self.acme_eab {
            config = config.with_binding(binding(file)?);
        }
        if let Some(profile) = &self.acme_profile {
            config = config.with_profile(profile);
        }
        Ok(config)
    }

    /// Refuses must-staple where no certificate would ever serve.
    fn check_must_staple(&self, engine: TlsEngine) -> Result<(), Failure> {
        if !self.acme_must_staple {
            return Ok(());
        }
        if !engine.capabilities().stapling {
            return Err(Failure::usage(format!(
                "--acme-must-staple: the TLS engine {engine} cannot staple OCSP responses: take --tls fused"
            )));
        }
        if self.acme_directory == LETS_ENCRYPT {
            return Err(Failure::usage(
                "--acme-must-staple: Let's Encrypt has no OCSP responder since 2025, and refuses such orders: leave this \
                 option out, or name another authority by --acme-directory",
            ));
        }
        Ok(())
    }
}

impl Service {
    /// Adds the certificate and the answers to challenges.
    pub(super) fn files(&self, files: ServerFiles) -> ServerFiles {
        files.acme(&self.acme)
    }

    pub(super) fn show(&self, admin: Admin) -> Admin {
        admin.with_acme(self.acme.clone())
    }

    /// Prepares the listener for HTTP-01 of a server, if there is one, and prints its address. A predecessor passes the sockets
    /// of it as those of this number.
    pub(super) fn prepare_http(
        &self,
        server: &mut PreparedServer,
        number: usize,
    ) -> Result<Option<PreparedServer>, Failure> {
        if self.http.is_empty() {
            return Ok(None);
        }
        let port = server.handle().addresses().iter().find_map(|address| match address {
            Address::Tcp(address) => Some(address.port()),
            _ => None,
        });
        let passed = server.take_listening_of(number);
        let plain = Server::new(Tls { engine: TlsEngine::Plain, config: ServerConfig::default() });
        let mut plain = HttpChallenges::prepare(plain);
        plain = if passed.is_empty() {
            self.http.iter().cloned().fold(plain, Server::listen)
        } else {
            passed.into_iter().fold(plain, Server::listen_on)
        };
        let challenges = HttpChallenges::new(self.acme.clone(), port.unwrap_or(443));
        let prepared = loops::prepare_server(plain, false, Box::new(move |_| Box::new(challenges.clone())))?;
        for address in prepared.handle().addresses() {
            output::note(format_args!("challenges of HTTP-01 are answered at http://{address}/"));
        }
        Ok(Some(prepared))
    }

    /// Starts the thread that orders and renews.
    pub(super) fn renew(&self, files: &ServerFiles, reloader: Reloader) -> Result<Renewing, Failure> {
        Ok(Renewing { _renewal: files.renew(&self.acme, reloader)? })
    }
}

/// Whether two listeners cannot have these addresses.
fn are_one(one: &Address, other: &Address) -> bool {
    let (Address::Tcp(one), Address::Tcp(other)) = (one, other) else { return one == other };
    let overlap = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && overlap
}

/// Whether the authority of this directory is on this machine.
fn is_near(directory: &str) -> bool {
    let (_, place) = directory.split_once("://").unwrap_or_default();
    let place = place.split('/').next().unwrap_or_default();
    let host = place.rsplit_once(':').map_or(place, |(host, _)| host).trim_matches(['[', ']']);
    is_loopback(host)
}

/// Refuses a folder whose certificate must be stapled, if the engine cannot.
fn refuse_unstapled(report: &Report, engine: TlsEngine, folder: &Path) -> Result<(), Failure> {
    if !report.must_be_stapled || engine.capabilities().stapling {
        return Ok(());
    }
    let shown = folder.display();
    Err(Failure::usage(format!(
        "--acme-folder: clients reject the certificate in {shown} unless its OCSP response is stapled, which the TLS engine \
         {engine} cannot do: take --tls fused"
    )))
}

/// The account at the authority in a file.
fn binding(file: &Path) -> Result<AccountBinding, Failure> {
    let read = crate::files::read(file, "file of --acme-eab")?;
    let text = String::from_utf8(read).unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let made = match words[..] {
        [id, key] => AccountBinding::new(id, key),
        _ => Err("it has an identifier and a key, with a space between them".to_owned()),
    };
    made.map_err(|why| Failure::usage(format!("--acme-eab: {}: {why}", file.display())))
}

/// The folder without --acme-folder.
pub(crate) fn usual_folder() -> Option<PathBuf> {
    let of_service = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = || DevCert::locate().and_then(|own| own.key.parent().map(Path::to_owned));
    of_service.or_else(of_user).map(|folder| folder.join("acme"))
}
