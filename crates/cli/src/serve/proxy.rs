//! `taut proxy`: a server whose application passes requests on to others.

use super::Arguments;
use super::common::CommonArguments;
use super::front::{Front, Source};
use super::front_tls::take_tls;
use super::listen::{Listen, listen};
use crate::failure::Failure;
use clap::{Args as _, FromArgMatches as _};
use std::path::{Path, PathBuf};
use tautline_proxy::Plan;

/// Pass HTTP and WebSockets on to the servers behind it.
///
/// A configuration (docs/proxy.md) has routes, groups of servers and certificates. --to has the one case of a single group.
///
/// SIGHUP reads the configuration again, and so does a change of the file. Live connections keep the routes that they began with.
/// A file with a fault changes nothing, and each fault is reported with its line. `taut check FILE` reports them before.
///
/// Other signals are those of `taut serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut proxy --to http://127.0.0.1:3000           wss and https at 127.0.0.1:8443, to a server at port 3000
  taut proxy --listen :443 --cert cert.pem --key key.pem --to http://127.0.0.1:3000
  taut proxy --plain --listen :8080 --to unix:/run/app.sock
  taut proxy --config taut.toml --harden")]
pub(crate) struct ProxyArguments {
    /// Configuration, TOML.
    #[arg(long, value_name = "FILE", required_unless_present = "to")]
    config: Option<PathBuf>,
    /// Server that gets all requests: http://HOST:PORT or unix:PATH. May be repeated: each gets requests in turn.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    to: Vec<String>,
    #[command(flatten)]
    common: CommonArguments,
}

impl ProxyArguments {
    /// Whether the server confines its access to files.
    pub(crate) const fn confines_files(&self) -> bool {
        self.common.privilege.confines_files()
    }

    /// The server with these options. Reads the configuration.
    pub(crate) fn server(&self) -> Result<Arguments, Failure> {
        let source = match &self.config {
            Some(path) => Source::File(path.clone()),
            None => Source::Servers(self.to.clone()),
        };
        let plan = source.plan(None)?;
        let mut server = bare()?;
        server.common = self.common.clone();
        if server.common.listen.is_empty() {
            server.common.listen = listening(&plan)?;
        }
        let own = server.common.tls.clone();
        take_clients(&mut server.common, &plan)?;
        server.front = Some(Front::new(source, plan, own));
        Ok(server)
    }
}

/// A server as without any option.
fn bare() -> Result<Arguments, Failure> {
    let none = Arguments::augment_args(clap::Command::new("proxy")).try_get_matches_from(["proxy"]);
    let server = none.and_then(|none| Arguments::from_arg_matches(&none));
    server.map_err(|error| Failure::failed(format!("the options have no defaults: {error}")))
}

/// Adds the TLS and the protocols of a plan.
fn take_clients(common: &mut CommonArguments, plan: &Plan) -> Result<(), Failure> {
    if plan.http2 {
        common.loops.http2.turn_on();
    }
    take_tls(&mut common.tls, plan)
}

/// The addresses of a plan.
fn listening(plan: &Plan) -> Result<Vec<Listen>, Failure> {
    let read = |text: &String| listen(text).map_err(|how| Failure::usage(format!("listen {text:?}: {how}")));
    plan.listen.iter().map(read).collect()
}

/// The server of a configuration, to check it with the user and the hardening of these options.
pub(super) fn server_of(path: &Path, options: &Arguments) -> Result<Arguments, Failure> {
    let mut server = bare()?;
    server.common.privilege = options.common.privilege.clone();
    if format!("{server:?}") != format!("{options:?}") {
        return Err(Failure::usage(
            "a configuration is checked with --user and --harden only: leave out the other options",
        ));
    }
    let source = Source::File(path.to_owned());
    let plan = source.plan(None)?;
    server.common.listen = listening(&plan)?;
    let own = server.common.tls.clone();
    take_clients(&mut server.common, &plan)?;
    server.front = Some(Front::new(source, plan, own));
    Ok(server)
}
