//! `--admin`: metrics, health, connections and the log level, over HTTP.

use super::acme::Service;
use super::broker::BrokerHealth;
#[cfg(feature = "proxy")]
use super::front::Front;
#[cfg(feature = "proxy")]
use super::front_metrics::FrontMetrics;
use super::hub_metrics::HubMetrics;
use super::stop::LameDuck;
use crate::failure::Failure;
use crate::files;
use crate::local::local;
use crate::logging::LogFilter;
use crate::output;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use tautline::layers::metrics::prometheus_client::registry::Registry;
use tautline::{
    AccessLog, Address, Admin, AdminToken, Config, PreparedServer, Server, ServerConfig, Tls, TlsEngine,
    check_admin_address,
};
use tautline_lab::loops;

/// The admin listener.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AdminArguments {
    /// Serve metrics (OpenMetrics), health, connections and the log level over HTTP, at a Unix socket or an address of the machine
    /// itself: unix:PATH, IP:PORT or localhost:PORT.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    admin: Option<Address>,
    /// Let --admin be an address that other machines reach, also :PORT for all. Requests need the token.
    #[arg(long, requires = "admin", requires = "admin_token_file")]
    admin_public: bool,
    /// File with the token that requests to --admin over TCP need, as `Authorization: Bearer TOKEN`: a line of `openssl rand -hex 32`.
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<PathBuf>,
}

/// Understands an address of this machine alone, and any other one, whose use is checked later.
fn address(text: &str) -> Result<Address, String> {
    let is_all = text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let whole = if is_all { format!("0.0.0.0{text}") } else { text.to_owned() };
    local(&whole).or_else(|why| {
        let found = whole.to_socket_addrs().ok().and_then(|mut found| found.next());
        found.map(Address::Tcp).ok_or(why)
    })
}

impl AdminArguments {
    pub(super) const fn address(&self) -> Option<&Address> {
        self.admin.as_ref()
    }

    /// Reads the token.
    ///
    /// # Errors
    /// If the file has none, or if other machines reach the address without --admin-public.
    pub(super) fn token(&self) -> Result<Option<AdminToken>, Failure> {
        let is_open = self.admin.as_ref().is_some_and(|address| check_admin_address(address).is_err());
        if is_open && !self.admin_public {
            return Err(Failure::usage(
                "--admin: other machines reach this address: use 127.0.0.1 or a Unix socket, or add --admin-public and \
                 --admin-token-file",
            ));
        }
        let Some(file) = &self.admin_token_file else { return Ok(None) };
        let token = files::read(file, "token of --admin-token-file")?;
        let token = AdminToken::new(&String::from_utf8_lossy(&token));
        let token = token.map_err(|how| Failure::usage(format!("--admin-token-file: {}: {how}", file.display())))?;
        Ok(Some(token))
    }

    /// Has loops keep the paths of their connections, to list them.
    pub(super) fn apply(&self, config: &mut Config) {
        if self.admin.is_some() && config.access_log.is_none() {
            config.access_log = Some(AccessLog::discard());
        }
    }
}

/// The parts of an admin listener beside its server.
pub(super) struct Shown<'a> {
    pub(super) filter: LogFilter,
    pub(super) token: Option<AdminToken>,
    pub(super) acme: Option<&'a Service>,
    pub(super) lame_duck: LameDuck,
    pub(super) broker: BrokerHealth,
    #[cfg(feature = "proxy")]
    pub(super) front: Option<Front>,
    pub(super) hub: HubMetrics,
}

/// Prepares the admin listener of a server at this address, and prints the address. The sockets of a predecessor come along.
pub(super) fn prepare(
    server: &mut PreparedServer,
    address: &Address,
    shown: Shown<'_>,
) -> Result<PreparedServer, Failure> {
    let own = metrics(&shown);
    let Shown { filter, token, acme, lame_duck, broker, .. } = shown;
    let admin = Admin::new(server.handle()).with_log_level(filter).with_metrics(own);
    let admin = admin.with_readiness(move || lame_duck.unreadiness().or_else(|| broker.unreadiness()));
    let admin = token.into_iter().fold(admin, Admin::with_token);
    let plain = Server::new(Tls { engine: TlsEngine::Plain, config: ServerConfig::default() });
    let admin = match acme {
        Some(acme) => acme.show(admin),
        None => admin,
    };
    let passed = server.take_listening_of(0);
    let mut plain = admin.prepare(plain, address)?;
    plain = if passed.is_empty() {
        plain.listen(address.clone())
    } else {
        passed.into_iter().fold(plain, Server::listen_on)
    };
    let prepared = loops::prepare_server(plain, false, Box::new(move |_| Box::new(admin.clone())))?;
    match &prepared.handle().addresses()[0] {
        Address::Tcp(address) => output::note(format_args!("admin listener at http://{address}/")),
        other => output::note(format_args!("admin listener at {other}")),
    }
    Ok(prepared)
}

/// The figures of this program beside those of its server.
fn metrics(shown: &Shown<'_>) -> Registry {
    let mut own = Registry::default();
    own.register("taut_log_lines_lost", "Lines of logs that their readers did not take", output::lost());
    shown.broker.register(&mut own);
    shown.hub.register(&mut own);
    #[cfg(feature = "proxy")]
    if let Some(front) = &shown.front {
        own.register_collector(Box::new(FrontMetrics(front.clone())));
    }
    own
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_of_this_machine_alone_is_preferred() {
        let read = |text: &str| address(text).map(|address| address.to_string());
        assert!(read("localhost:9100").unwrap().ends_with(":9100"));
        assert!(super::check_admin_address(&address("localhost:9100").unwrap()).is_ok());
        assert_eq!(read("unix:/run/a.sock"), Ok("unix:/run/a.sock".to_owned()));
        assert_eq!(read(":9100"), Ok("0.0.0.0:9100".to_owned()));
        assert_eq!(read("10.0.0.7:9100"), Ok("10.0.0.7:9100".to_owned()));
        assert!(read("9100").unwrap_err().contains("write unix:PATH, IP:PORT"));
    }
}
