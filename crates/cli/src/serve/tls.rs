use crate::development::Development;
use crate::failure::Failure;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tautline::{CertificateFiles, Reloader, ServerConfig, ServerFiles, TicketFile, Tickets, Tls, TlsEngine, Watch};

/// How often the files are looked at. What has changed is read when it has not changed for as long again.
const LOOK: Duration = Duration::from_secs(1);

/// TLS of the server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsArguments {
    /// No TLS: ws:// instead of wss://.
    #[arg(long, conflicts_with_all = ["cert", "key", "ocsp", "client_ca", "tls", "tickets", "ticket_secret", "ticket_rotate", "no_watch", "key_log", "ktls"])]
    pub(super) plain: bool,
    /// TLS engine: fused or rustls; openssl, aws-lc, boringssl, libressl, mbedtls or wolfssl where they are built in.
    #[arg(long, value_name = "ENGINE", default_value_t)]
    tls: TlsEngine,
    /// Certificate chain, PEM. Several, each with its --key, stand side by side: the client's offers choose.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Vec<PathBuf>,
    /// Private key of the --cert at the same place, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Vec<PathBuf>,
    /// OCSP response for the --cert at the same place, DER, to be stapled; `-` is none.
    #[arg(long, value_name = "FILE", requires = "cert")]
    ocsp: Vec<PathBuf>,
    /// Do not reload these files when they change, only on SIGHUP.
    #[arg(long)]
    no_watch: bool,
    /// Require client certificates by an authority in this PEM file. No session is resumed then.
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// Tickets for each TLS 1.3 handshake; 0 turns resumption off.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(..=i64::from(ServerConfig::MOST_TICKETS)))]
    tickets: u8,
    /// Derive ticket keys from a secret in this file, the same on every host that is to resume the others' sessions: a line of
    /// `openssl rand -hex 32`. Further lines are secrets that are accepted too. The file is watched.
    #[arg(long, value_name = "FILE")]
    ticket_secret: Option<PathBuf>,
    /// Seconds for which a ticket key seals; it opens for as long again. The same on every host with one --ticket-secret.
    #[arg(long, value_name = "SECONDS", default_value_t = Tickets::LONGEST.as_secs(), value_parser = clap::value_parser!(u64).range(1..=Tickets::LONGEST.as_secs()))]
    ticket_rotate: u64,
    /// Write the sessions' secrets to the file that SSLKEYLOGFILE names.
    #[arg(long)]
    key_log: bool,
}

impl TlsArguments {
    /// The configuration, and the files that it can be loaded from anew.
    pub(super) fn load(&self) -> Result<(Tls, Option<ServerFiles>), Failure> {
        if self.plain {
            return Ok((Tls::Plain, None));
        }
        let files = self.files()?;
        let tls = self.tls.server(files.load()?);
        Ok((tls, Some(files)))
    }

    /// Watches the files, unless told not to.
    pub(super) fn watch(&self, files: &ServerFiles, reloader: &Reloader) -> Result<Option<Watch>, Failure> {
        if self.no_watch {
            return Ok(None);
        }
        Ok(Some(files.clone().watch(reloader.clone(), LOOK)?))
    }

    fn files(&self) -> Result<ServerFiles, Failure> {
        let (certs, keys, responses) = (self.cert.len(), self.key.len(), self.ocsp.len());
        if certs != keys {
            return Err(Failure::usage(format!("{certs} --cert but {keys} --key; each certificate needs its key")));
        }
        if responses != 0 && responses != certs {
            let advice = "give one for each certificate, `-` where there is none";
            return Err(Failure::usage(format!("{certs} --cert but {responses} --ocsp; {advice}")));
        }
        if self.ticket_secret.is_some() && self.tickets == 0 {
            return Err(Failure::usage("--tickets 0 turns resumption off; leave one out, it or --ticket-secret"));
        }
        if self.ticket_secret.is_some() && self.client_ca.is_some() {
            eprintln!(
                "--ticket-secret is of no use with --client-ca: sessions of clients with certificates are not resumed"
            );
        }
        let mut files = ServerFiles::new(ServerConfig {
            key_log: self.key_log,
            tickets: self.tickets(),
            tickets_per_handshake: self.tickets.max(1),
            ..ServerConfig::default()
        });
        for (index, (chain, key)) in self.cert.iter().zip(&self.key).enumerate() {
            let ocsp = self.ocsp.get(index).filter(|path| path.as_os_str() != "-").cloned();
            files = files.certificate(CertificateFiles { chain: chain.clone(), key: key.clone(), ocsp });
        }
        if certs == 0 {
            let development = Development::locate()
                .ok_or_else(|| Failure::usage("no home folder for a development certificate; pass --cert and --key"))?;
            let instead = |failure| Failure::usage(format!("{failure}; pass --cert and --key instead"));
            development.ensure().map_err(instead)?;
            let authority = development.authority.display();
            eprintln!("no --cert given: a development certificate for localhost is used");
            eprintln!("taut connect and taut load trust it; other clients trust it by its authority, {authority}");
            let Development { chain, key, .. } = development;
            files = files.certificate(CertificateFiles { chain, key, ocsp: None });
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
