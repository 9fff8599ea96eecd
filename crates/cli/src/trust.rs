use crate::development::Development;
use crate::failure::Failure;
use crate::files;
use std::path::PathBuf;
use tautline::{ClientConfig, Roots, Target};

/// Whom a client trusts, and as whom it appears.
#[derive(Debug, clap::Args)]
pub(crate) struct Trust {
    /// Trust the authorities in this PEM file instead of the platform's.
    #[arg(help_heading = "TLS", long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// DANGER: trust anyone. Whoever is in between can read and change everything.
    #[arg(help_heading = "TLS", long, conflicts_with = "ca")]
    insecure: bool,
    /// Client certificate chain, PEM.
    #[arg(help_heading = "TLS", long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Key of the client certificate, PEM.
    #[arg(help_heading = "TLS", long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Write the session's secrets to the file that SSLKEYLOGFILE names.
    #[arg(help_heading = "TLS", long)]
    key_log: bool,
}

impl Trust {
    /// The configuration for connections to `target`. Without any choice by the user the platform's authorities are
    /// trusted; on loopback instead the development authority of `taut serve`, where this user has one.
    pub(crate) fn config(&self, target: &Target) -> Result<ClientConfig, Failure> {
        let roots = if self.insecure {
            eprintln!("taut: --insecure: anyone between here and {} can read and change everything", target.host());
            Roots::DangerNone
        } else if let Some(path) = &self.ca {
            Roots::Pem(files::read(path, "authority")?)
        } else {
            let development = Development::locate().filter(|_| is_loopback(target.host()));
            let authority = development.and_then(|development| std::fs::read(development.authority).ok());
            authority.map_or(Roots::Platform, Roots::Pem)
        };
        let certificate = match (&self.cert, &self.key) {
            (Some(chain), Some(key)) => Some(files::certificate(chain, key)?),
            _ => None,
        };
        Ok(ClientConfig { roots, certificate, key_log: self.key_log, ..ClientConfig::default() })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_development_authority_is_trusted_on_loopback_only() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example", "10.0.0.1", "example.org", "", "::2"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
