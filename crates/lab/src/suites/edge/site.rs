//! The server behind the proxies, and proxies that run in front of it.

use super::super::guest::Installed;
use super::super::running::{Live, Place, Running};
use super::super::{Certificates, Kind, Lab, Process};
use super::case::Who;
use super::program::Program;
use crate::{DriverKind, Error};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// The longest message that our proxy passes.
const LONGEST: &str = "1MiB";

/// The parts that all servers of the suite share.
pub(super) struct Site {
    pub(super) certificates: Certificates,
    /// The server behind the proxies.
    pub(super) backend: Process,
    pub(super) installed: Vec<Installed<Program>>,
}

impl Site {
    pub(super) fn start(&self, lab: &Lab<'_>, who: Who) -> Result<Live, Error> {
        match who {
            Who::Ours(kind) => {
                let to = format!("http://{}", self.backend.address);
                let further: &[&str] = if who.is_our_proxy() { &["--to", &to] } else { &[] };
                Ok(Live::Ours(Process::start_with(lab, kind, &self.certificates, None, further)?))
            }
            Who::Messages(driver) => {
                let file = self.certificates.folder().join("messages.toml");
                let keys = format!("messages = {{ max-size = \"{LONGEST}\" }}");
                let text = configuration(self.backend.address, 0, &keys);
                start_ours(lab, driver, &self.certificates, (&file, &text))
            }
            Who::Other(program) => self.start_other(lab, program, false).map(Live::Other),
        }
    }

    pub(super) fn installed(&self, program: Program) -> Result<&Installed<Program>, String> {
        let installed = self.installed.iter().find(|installed| installed.program == program);
        installed.ok_or_else(|| format!("{} is missing", program.name()))
    }

    /// Starts a proxy of another project, which can be told to change if it `changes`.
    pub(super) fn start_other(&self, lab: &Lab<'_>, program: Program, changes: bool) -> Result<Running, Error> {
        let installed = self.installed(program).map_err(Error::Failed)?;
        let make = |place: &Place<'_>| installed.command(place, changes);
        Running::start(lab, installed, &self.certificates, self.backend.address, make)
    }
}

/// A configuration of our proxy: all to the server, with further keys of that route, and a route that differs by `number`.
pub(super) fn configuration(backend: SocketAddr, number: u32, keys: &str) -> String {
    format!(
        "[[route]]\nto = \"echo\"\n{keys}\n\
         [[route]]\npath = \"/changes/{number}\"\nanswer = {{ status = 204 }}\n\
         [backend.echo]\nservers = [\"http://{backend}\"]\n"
    )
}

/// Starts our proxy with a configuration in this file.
pub(super) fn start_ours(
    lab: &Lab<'_>,
    driver: DriverKind,
    certificates: &Certificates,
    (file, text): (&Path, &str),
) -> Result<Live, Error> {
    fs::write(file, text).map_err(|error| Error::Failed(format!("{}: {error}", file.display())))?;
    let further = ["--config", &file.to_string_lossy()];
    Ok(Live::Ours(Process::start_with(lab, Kind::Proxy(driver), certificates, None, &further)?))
}
