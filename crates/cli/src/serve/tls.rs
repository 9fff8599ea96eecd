use super::acme::{AcmeArguments, Service};
use super::privilege::PrivilegeArguments;
use crate::aead::AeadArguments;
use crate::dev_cert::DevCert;
use crate::failure::Failure;
use crate::output;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tautline::{
    CertificateFiles, ClientAuth, Reloader, ServerConfig, ServerFiles, TicketFile, Tickets, Tls, TlsEngine, Watch,
};

/// Time between two looks at the files. A changed file is read when it has not changed for this time.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// TLS of the server.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArguments {
    /// Serve ws:// without TLS, instead of wss://.
    #[arg(long, conflicts_with_all = ["cert", "key", "ocsp", "client_ca", "tls", "aead", "tickets", "ticket_secret", "ticket_rotate", "no_watch", "key_log", "ktls"])]
    pub(super) plain: bool,
    /// TLS engine: fused or rustls; also openssl, aws-lc, boringssl, libressl, mbedtls or wolfssl, if built in.
    #[arg(long, value_name = "ENGINE", default_value_t)]
    tls: TlsEngine,
    #[command(flatten)]
    pub(super) acme: AcmeArguments,
    #[command(flatten)]
    aead: AeadArguments,
    /// Certificate chain, PEM. May be repeated, each with its --key: the server chooses one that the client accepts.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Vec<PathBuf>,
    /// Private key of the --cert at the same place, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Vec<PathBuf>,
    /// Certificates of a configuration, in place of --cert and --key.
    #[arg(skip)]
    configured: Vec<CertificateFiles>,
    /// OCSP response to staple for the --cert at the same place, DER; `-` for none.
    #[arg(long, value_name = "FILE", requires = "cert")]
    ocsp: Vec<PathBuf>,
    /// Reload these files only on SIGHUP, and not when they change.
    #[arg(long)]
    no_watch: bool,
    /// Require client certificates by an authority in this PEM file. Sessions are then not resumed.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Serve clients without a certificate, too.
    #[arg(skip)]
    client_may_be_unknown: bool,
    /// Tickets per TLS 1.3 handshake; 0 turns resumption off.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(..=i64::from(ServerConfig::MOST_TICKETS)))]
    tickets: u8,
    /// File with the secret of ticket keys, the same on all hosts that resume each other's sessions: a line of
    /// `openssl rand -hex 32`. Further lines are secrets that are accepted too. The file is watched.
    #[arg(long, value_name = "FILE")]
    ticket_secret: Option<PathBuf>,
    /// Seconds during which a ticket key seals; it opens tickets for the same time again. All hosts with the same
    /// --ticket-secret need the same value.
    #[arg(long, value_name = "SECONDS", default_value_t = Tickets::LONGEST.as_secs(), value_parser = clap::value_parser!(u64).range(1..=Tickets::LONGEST.as_secs()))]
    ticket_rotate: u64,
    /// Write the secrets of all sessions to the file that SSLKEYLOGFILE names.
    #[arg(long)]
    key_log: bool,
}

impl TlsArguments {
    /// The certificate that the server orders itself, if it does.
    pub(super) fn acme(&self, privilege: &PrivilegeArguments) -> Result<Option<Service>, Failure> {
        self.acme.open(self.tls, privilege)
    }

    /// Checks the files and options, without an order.
    pub(super) fn check_acme(&self) -> Result<(), Failure> {
        self.acme.check(self.tls)
    }

    /// The engine.
    #[cfg(feature = "proxy")]
    pub(super) const fn engine(&self) -> TlsEngine {
        if self.plain { TlsEngine::Plain } else { self.tls }
    }

    /// Takes the certificates of a configuration, where the options have none.
    #[cfg(feature = "proxy")]
    pub(super) fn take_certificates(&mut self, files: Vec<CertificateFiles>, plain: bool) -> Result<(), Failure> {
        let has_options = !self.cert.is_empty() || self.acme.is_on();
        if has_options && (plain || !files.is_empty()) || self.plain && !files.is_empty() {
            return Err(Failure::usage(
                "certificates are in the configuration and among the options: keep them in one place",
            ));
        }
        self.plain |= plain;
        self.configured = files;
        Ok(())
    }

    /// Whether there are certificates among the options or in the configuration.
    #[cfg(feature = "proxy")]
    pub(super) const fn has_certificates(&self) -> bool {
        !self.cert.is_empty() || !self.configured.is_empty()
    }

    /// Checks that the options have no authorities of client certificates beside those of a configuration.
    #[cfg(feature = "proxy")]
    pub(super) fn forbid_client_ca(&self) -> Result<(), Failure> {
        if self.client_ca.is_some() || self.plain {
            return Err(Failure::usage("client-ca is in the configuration: leave out --client-ca and --plain"));
        }
        Ok(())
    }

    /// Takes the authorities of the clients of all hosts.
    #[cfg(feature = "proxy")]
    pub(super) fn take_client_ca(&mut self, path: PathBuf, is_optional: bool) {
        self.client_ca = Some(path);
        self.client_may_be_unknown = is_optional;
    }

    /// The configuration, and the files to reload it from; no files without TLS.
    pub(super) fn load(
        &self,
        acme: Option<&Service>,
    ) -> Result<(Tls<ServerConfig, TlsEngine>, Option<ServerFiles>), Failure> {
        if self.plain {
            return Ok((Tls { engine: TlsEngine::Plain, config: ServerConfig::default() }, None));
        }
        self.aead.apply();
        let files = self.files(acme)?;
        let tls = Tls { engine: self.tls, config: files.load()? };
        Ok((tls, Some(files)))
    }

    /// The files that are read again at a reload.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let named =
            self.cert.iter().chain(&self.key).chain(&self.ocsp).chain(&self.client_ca).chain(&self.ticket_secret);
        let mut paths: Vec<PathBuf> = named.cloned().collect();
        paths.extend(self.configured.iter().flat_map(CertificateFiles::paths).map(PathBuf::from));
        if self.cert.is_empty() && self.configured.is_empty() && !self.plain && !self.acme.is_on() {
            paths.extend(DevCert::locate().into_iter().flat_map(|DevCert { chain, key, .. }| [chain, key]));
        }
        paths
    }

    /// The file to which secrets of sessions are written.
    pub(super) fn key_log_path(&self) -> Option<PathBuf> {
        self.key_log.then(|| std::env::var_os("SSLKEYLOGFILE").map(PathBuf::from)).flatten()
    }

    /// Watches the files, unless --no-watch is given.
    pub(super) fn watch(&self, files: &ServerFiles, reloader: &Reloader) -> Result<Option<Watch>, Failure> {
        if self.no_watch {
            return Ok(None);
        }
        Ok(Some(files.clone().watch(reloader.clone(), WATCH_INTERVAL)?))
    }

    /// The files of the configuration.
    pub(super) fn files(&self, acme: Option<&Service>) -> Result<ServerFiles, Failure> {
        let (certs, keys, responses) = (self.cert.len(), self.key.len(), self.ocsp.len());
        if certs != keys {
            return Err(Failure::usage(format!("{certs} --cert but {keys} --key; each certificate needs its key")));
        }
        if responses != 0 && responses != certs {
            let advice = "give one for each certificate, `-` if it has none";
            return Err(Failure::usage(format!("{certs} --cert but {responses} --ocsp; {advice}")));
        }
        if self.ticket_secret.is_some() && self.tickets == 0 {
            return Err(Failure::usage("--tickets 0 turns resumption off; leave out --tickets or --ticket-secret"));
        }
        if self.ticket_secret.is_some() && self.client_ca.is_some() {
            output::note(
                "--ticket-secret has no effect with --client-ca: sessions of clients with certificates are not resumed",
            );
        }
        let mut config = ServerConfig::default().with_key_log(self.key_log).with_tickets(self.tickets());
        if self.client_may_be_unknown {
            // The roots are those of the file.
            config = config.with_client_auth(ClientAuth::Optional(Vec::new()));
        }
        let mut files = ServerFiles::new(config.with_tickets_per_handshake(self.tickets.max(1)));
        for (index, (chain, key)) in self.cert.iter().zip(&self.key).enumerate() {
            let certificate = CertificateFiles::new(chain, key);
            let response = self.ocsp.get(index).filter(|path| path.as_os_str() != "-");
            files = files.certificate(match response {
                Some(response) => certificate.with_ocsp(response),
                None => certificate,
            });
        }
        files = self.configured.iter().cloned().fold(files, ServerFiles::certificate);
        if let Some(acme) = acme {
            files = acme.files(files);
        } else if certs == 0 && self.configured.is_empty() {
            let dev_cert = DevCert::locate()
                .ok_or_else(|| Failure::usage("no home folder for a development certificate; pass --cert and --key"))?;
            let instead = |failure| Failure::usage(format!("{failure}; pass --cert and --key instead"));
            dev_cert.ensure().map_err(instead)?;
            let authority = dev_cert.authority.display();
            output::note("no --cert given: a development certificate for localhost is used");
            output::note(format_args!(
                "taut connect and taut load trust it; other clients can trust its authority, {authority}"
            ));
            let DevCert { chain, key, .. } = dev_cert;
            files = files.certificate(CertificateFiles::new(chain, key));
        }
        Ok(match &self.client_ca {
            Some(path) => files.client_roots(path.clone()),
            None => files,
        })
    }

    fn tickets(&self) -> Tickets {
        let period = Duration::from_secs(self.ticket_rotate);
        match &self.ticket_secret {
            _ if self.tickets == 0 => Tickets::Off,
            None => Tickets::Own { rotate: period },
            Some(path) => Tickets::Fleet { source: Arc::new(TicketFile::new(path.clone())), epoch: period },
        }
    }
}
