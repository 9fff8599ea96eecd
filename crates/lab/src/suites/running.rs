//! Servers of other projects that have a configuration of their own, beside ours.

use super::guest::{self, Guest};
use super::{Certificates, Lab, Process};
use crate::{Error, load};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use tautline::{Roots, Target};

/// A server that runs.
pub(super) enum Live {
    Ours(Process),
    Other(Running),
}

impl Live {
    /// The process that was started first.
    pub(super) fn pid(&self) -> u32 {
        match self {
            Self::Ours(process) => process.pid(),
            Self::Other(running) => running.guest.pid(),
        }
    }

    /// The server as a target of the load generator.
    pub(super) fn server(&self) -> Result<load::Server, Error> {
        match self {
            Self::Ours(process) => process.server(),
            Self::Other(running) => running.server(),
        }
    }

    /// The server for requests of HTTP.
    pub(super) fn http(&self) -> Result<load::Server, Error> {
        let mut server = self.server()?;
        let address = server.target.address.take();
        server.target = Target::raw(&format!("https://127.0.0.1:{}/", server.target.port())).map_err(Error::failed)?;
        server.target.address = address;
        Ok(server)
    }
}

/// The response to each request for [`PATH`]: its bytes, and their number.
pub(super) const BODY: usize = 1024;
pub(super) const PATH: &str = "/kib.txt";

pub(super) fn body() -> Vec<u8> {
    (b'a'..=b'z').cycle().take(BODY).collect()
}

/// Makes the folder with that file.
pub(super) fn files(certificates: &Certificates) -> Result<PathBuf, Error> {
    let files = certificates.folder().join("files");
    let written = fs::create_dir(&files).and_then(|()| fs::write(files.join(&PATH[1..]), body()));
    written.map_err(|error| Error::Failed(format!("{}: {error}", files.display())))?;
    Ok(files)
}

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

    fn server(&self) -> Result<load::Server, Error> {
        let mut server = load::Server::new(&format!("wss://{}/", self.guest.address))?;
        server.target.address = Some(self.guest.address.into());
        server.tls.roots = Roots::Pem(self.authority.clone().into_bytes());
        server.pid = Some(self.guest.pid());
        Ok(server)
    }
}
