//! `taut proxy`: a server whose application passes requests on to others.

use super::admin::AdminArguments;
use super::front::{Front, Source};
use super::listen::{Listen, listen, unix_mode};
use super::privilege::PrivilegeArguments;
use super::proxied::ProxiedArguments;
use super::tls::TlsArguments;
use super::{Arguments, LoopArguments};
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
    /// Address to listen at, instead of those in the configuration: IP:PORT (port 0 takes a free one), NAME:PORT, :PORT for all
    /// interfaces, or unix:PATH. May be repeated.
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    listen: Vec<Listen>,
    /// Mode of the files of Unix sockets, in octal.
    #[arg(long, value_name = "MODE", value_parser = unix_mode)]
    unix_mode: Option<u32>,
    #[command(flatten)]
    admin: AdminArguments,
    /// Append a line for each HTTP request and each ended WebSocket to this file; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    loops: LoopArguments,
    #[command(flatten)]
    proxied: ProxiedArguments,
    #[command(flatten)]
    privilege: PrivilegeArguments,
    /// Allow core dumps, and debuggers of this user. They contain private keys and messages.
    #[arg(long)]
    core_dumps: bool,
    /// End when the process that started this one ends.
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl ProxyArguments {
    /// Whether the server confines its access to files.
    pub(crate) const fn confines_files(&self) -> bool {
        self.privilege.confines_files()
    }

    /// The server with these options. Reads the configuration.
    pub(crate) fn server(&self) -> Result<Arguments, Failure> {
        let source = match &self.config {
            Some(path) => Source::File(path.clone()),
            None => Source::Servers(self.to.clone()),
        };
        self.refuse_idle_options()?;
        let plan = source.plan(None)?;
        let mut server = bare()?;
        server.listen.clone_from(&self.listen);
        if server.listen.is_empty() {
            server.listen = listening(&plan)?;
        }
        server.unix_mode = self.unix_mode;
        server.admin.clone_from(&self.admin);
        server.access_log.clone_from(&self.access_log);
        server.tls = self.tls.clone();
        let pairs = plan.certificates.iter().map(|one| (one.cert.clone(), one.key.clone()));
        server.tls.take_certificates(pairs.collect(), plan.plain)?;
        server.loops = self.loops.clone();
        server.proxied = self.proxied.clone();
        server.privilege = self.privilege.clone();
        server.core_dumps = self.core_dumps;
        server.with_parent = self.with_parent;
        server.front = Some(Front::new(source, plan));
        Ok(server)
    }

    /// Refuses options about messages, which servers or routes decide.
    fn refuse_idle_options(&self) -> Result<(), Failure> {
        let loops = &self.loops;
        let given = [
            (loops.max_message.is_some(), "--max-message"),
            (loops.deflate || loops.deflate_takeover, "--deflate"),
            (!loops.subprotocol.is_empty(), "--subprotocol"),
            (!loops.origin.is_empty(), "--origin"),
            (loops.back_in.is_some(), "--back-in"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            None => Ok(()),
            Some((_, "--origin")) => Err(Failure::usage("--origin: write `origins` into a route of the configuration")),
            Some((_, option @ ("--max-message" | "--deflate"))) => {
                Err(Failure::usage(format!("{option}: write `messages` into a route of the configuration")))
            }
            Some((_, option)) => Err(Failure::usage(format!(
                "{option}: this is the servers' part, since a proxy passes on what they say: leave it out"
            ))),
        }
    }
}

/// A server as without any option.
fn bare() -> Result<Arguments, Failure> {
    let none = Arguments::augment_args(clap::Command::new("proxy")).try_get_matches_from(["proxy"]);
    let server = none.and_then(|none| Arguments::from_arg_matches(&none));
    server.map_err(|error| Failure::failed(format!("the options have no defaults: {error}")))
}

/// The addresses of a plan.
fn listening(plan: &Plan) -> Result<Vec<Listen>, Failure> {
    let read = |text: &String| listen(text).map_err(|how| Failure::usage(format!("listen {text:?}: {how}")));
    plan.listen.iter().map(read).collect()
}

/// The server of a configuration, to check it with the user and the hardening of these options.
pub(super) fn server_of(path: &Path, options: &Arguments) -> Result<Arguments, Failure> {
    let mut server = bare()?;
    server.privilege = options.privilege.clone();
    if format!("{server:?}") != format!("{options:?}") {
        return Err(Failure::usage(
            "a configuration is checked with --user and --harden only: leave out the other options",
        ));
    }
    let source = Source::File(path.to_owned());
    let plan = source.plan(None)?;
    server.listen = listening(&plan)?;
    let pairs = plan.certificates.iter().map(|one| (one.cert.clone(), one.key.clone()));
    server.tls.take_certificates(pairs.collect(), plan.plain)?;
    server.front = Some(Front::new(source, plan));
    Ok(server)
}
