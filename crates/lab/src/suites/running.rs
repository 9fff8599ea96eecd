//! Servers of other projects that have a configuration of their own.

use super::guest::{self, Guest};
use super::{Certificates, Lab};
use crate::{Error, load};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use tautline::Roots;

/// A server of another project that runs.
pub(super) struct Running {
    guest: Guest,
    authority: String,
}

impl Running {
    /// Starts a program on the server's CPU, and waits until it accepts connections at the address that `make` gets. That returns
    /// the command, and the file and the text of its configuration.
    pub(super) fn start(
        lab: &Lab<'_>,
        title: &str,
        certificates: &Certificates,
        make: impl FnOnce(SocketAddr) -> Result<(Command, PathBuf, String), Error>,
    ) -> Result<Self, Error> {
        let failed = |why: String| Error::Failed(format!("cannot start {title}: {why}"));
        let listen = guest::free_address().map_err(failed)?;
        let (mut command, file, text) = make(listen)?;
        fs::write(&file, text).map_err(|error| failed(format!("{}: {error}", file.display())))?;
        let log = file.with_extension("log");
        let guest = Guest::start(&mut command, listen, lab.placement.server, &log).map_err(failed)?;
        Ok(Self { guest, authority: certificates.authority().to_owned() })
    }

    /// The process that was started.
    pub(super) fn pid(&self) -> u32 {
        self.guest.pid()
    }

    /// The server as a target of the load generator.
    pub(super) fn server(&self) -> Result<load::Server, Error> {
        let mut server = load::Server::new(&format!("wss://{}/", self.guest.address))?;
        server.target.address = Some(self.guest.address.into());
        server.tls.roots = Roots::Pem(self.authority.clone().into_bytes());
        server.pid = Some(self.guest.pid());
        Ok(server)
    }
}
