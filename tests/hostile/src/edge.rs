//! Attacks by HTTP on `taut proxy` before a server, whose every request a witness between the two sees.

use crate::attack;
use crate::outcome::Result;
use crate::report::Row;
use crate::script::Script;
use crate::server::{Material, Server, Target};
use crate::witness::Witness;
use std::fs;
use std::path::Path;

/// The path that a route of the proxy keeps for itself: no request for it reaches the server, however it is hidden.
pub(crate) const HIDDEN: &str = "/hidden";

/// A value that clients claim, and that no head for the server has.
pub(crate) const FORGED: &str = "forged";

/// A proxy, the witness behind it, and the server behind that.
pub(crate) struct Edge {
    pub(crate) proxy: Server,
    witness: Witness,
    server: Server,
}

impl Edge {
    /// Starts all three. The proxy has the engine and the driver of the target.
    pub(crate) fn start(taut: &Path, material: &Material, target: &Target) -> Result<Self> {
        let behind = Target { tls: None, driver: target.driver.clone(), ..Target::default() };
        let behind = Target { place: " behind a proxy", ..behind };
        let server = Server::start(taut, material, &behind, &["--deflate"])?;
        let witness = Witness::before(server.address)?;
        let target = Target { place: " proxy", ..target.clone() };
        let file = material.file(&format!("{target}.toml").replace(' ', "-"));
        let text = format!(
            "[[route]]\npath = \"{HIDDEN}\"\nanswer = {{ status = 403 }}\n\n\
             [[route]]\nto = \"app\"\norigins = [\"http://localhost\", \"https://localhost\"]\n\n\
             [backend.app]\nservers = [\"http://{}\"]\nmax-connections = 1000\n",
            witness.address
        );
        fs::write(&file, text)?;
        let proxy = Server::start_proxy(taut, material, &target, &file)?;
        Ok(Self { proxy, witness, server })
    }

    /// Runs a script against the proxy. It fails too if the server got a request that was not for it.
    pub(crate) fn attack(&self, number: &str, script: &Script) -> Row {
        self.witness.forget();
        let mut row = attack::run(&self.proxy, None, number, script);
        if let Some(request) = self.witness.requests().into_iter().find(|request| is_smuggled(request)) {
            let line = request.lines().next().unwrap_or_default().to_owned();
            (row.outcome, row.passed) = (format!("the server got {line:?}"), false);
        }
        row
    }

    /// Ends the proxy and the server as an operator does.
    pub(crate) fn stop(self) -> Result<()> {
        self.proxy.stop()?;
        self.server.stop()
    }
}

/// Whether a head is for the hidden path, or tells the server what a client has claimed.
fn is_smuggled(head: &str) -> bool {
    let path = head.split(' ').nth(1).unwrap_or_default();
    let is_hidden = path.trim_start_matches("http://localhost").starts_with(HIDDEN);
    is_hidden || head.contains(FORGED)
}
