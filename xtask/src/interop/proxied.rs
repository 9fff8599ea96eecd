//! Servers that others have written behind `taut proxy`, with clients of theirs. `tests/interop/README.md` lists the checks.

use super::peer::{PEERS, Peer, checks, hold};
use super::ready;
use crate::outcome::{Failure, Outcome, none_of};
use crate::paths;
use crate::process::{Deadline, Running, run_logged};
use crate::stage::Context;
use crate::taut::{self, Certificates, Scheme, Server};

/// A backend behind a proxy of its own. The route `/NAME/t` is a tunnel, and `/NAME/m` passes messages.
pub(crate) struct Proxied {
    _backend: Running,
    proxy: Server,
    name: &'static str,
}

impl Proxied {
    /// Starts the backend in Node, whose packages must be there.
    pub(crate) fn in_node(certificates: &Certificates) -> Result<Self, Failure> {
        Self::start(Peer::Node, certificates)
    }

    fn start(peer: Peer, certificates: &Certificates) -> Result<Self, Failure> {
        let (name, port) = (peer.name(), taut::free_port()?);
        let log = paths::log(&format!("proxied-{name}-backend"));
        let mut backend = Running::start_logged(peer.call("backend").arg(port.to_string()), &log)?;
        ready(&log, &mut backend)?;
        let route = |way| format!("[[route]]\npath = \"/{name}/{way}\"\nrewrite = \"/\"\nto = \"app\"\n");
        let backends = format!("messages = {{}}\n[backend.app]\nservers = [\"http://127.0.0.1:{port}\"]\n");
        let text = route("t") + &route("m") + &backends;
        let proxy = taut::proxy(&format!("proxied-{name}"), Scheme::Wss, certificates, &text)?;
        Ok(Self { _backend: backend, proxy, name })
    }

    /// The address below which the routes are.
    pub(crate) fn url(&self) -> String {
        format!("{}/{}/", self.proxy.url().replace("wss", "https"), self.name)
    }
}

/// Every backend with every client. The last client has the backend kill itself.
pub(crate) fn run(context: &Context) -> Outcome {
    let certificates = taut::certificates(context)?;
    let mut present = Vec::new();
    for peer in PEERS {
        let installed = peer.install(context.deadline);
        present.extend(context.unless_skipped(&format!("proxied: {}", peer.name()), installed)?.map(|()| *peer));
    }
    if !present.contains(&Peer::Python) {
        return Err(Failure::Skipped("the client needs Python".to_owned()));
    }
    let mut failed = Vec::new();
    for peer in &present {
        let proxied = Proxied::start(*peer, &certificates)?;
        for client in [Peer::Node, Peer::Python].into_iter().filter(|client| present.contains(client)) {
            let held = converse(&proxied, *peer, client, &certificates, context.deadline);
            if !hold(&format!("{} behind the proxy, client in {}", peer.name(), client.name()), held) {
                failed.push(format!("{} with {}", peer.name(), client.name()));
            }
        }
    }
    none_of(&failed, ", ")
}

/// Runs a client against a backend, and returns how many checks held.
fn converse(
    proxied: &Proxied,
    backend: Peer,
    client: Peer,
    certificates: &Certificates,
    deadline: Deadline,
) -> Result<usize, Failure> {
    let Some(mut command) = client.proxied() else { return Ok(0) };
    command.arg(proxied.url()).arg(&certificates.ca);
    if backend.decides_on_frames() {
        command.arg("frames");
    }
    let log = paths::log(&format!("proxied-{}-client-{}", backend.name(), client.name()));
    run_logged(&mut command, &log, deadline)?;
    Ok(checks(&log))
}
