//! Programs of other projects: the brokers, and Centrifugo.

use super::super::Lab;
use super::super::guest::{self, Guest, Installed};
use super::super::peer::target;
use super::case::Broker;
use crate::Error;
use crate::load;
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use tautline_measure::named;

named! {
    /// A program of another project.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Program {
        NatsServer = "nats-server",
        RedisServer = "redis-server",
        Centrifugo = "centrifugo",
    }
}

impl Program {
    /// The installed program. It is built with Go if it is not, which takes minutes. `Err` says why there is none.
    pub(super) fn find(self) -> Result<Installed<Self>, String> {
        let Some((module, version)) = self.module() else {
            let path = guest::packaged(self.name())?;
            let version = guest::version_of(&path, "--version")?;
            return Ok(Installed::new(self, self.name(), path, version));
        };
        let folder = target().join(format!("fleet/{}-{version}", self.name()));
        let path = folder.join(self.name());
        if !path.is_file() {
            install(&format!("{module}@v{version}"), &folder)
                .map_err(|why| format!("{module} {version} was not built: {why}"))?;
        }
        Ok(Installed::new(self, self.name(), path, version.to_owned()))
    }

    /// The Go module, and its version.
    const fn module(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::NatsServer => Some(("github.com/nats-io/nats-server/v2", "2.11.4")),
            Self::RedisServer => None,
            Self::Centrifugo => Some(("github.com/centrifugal/centrifugo/v6", "6.9.1")),
        }
    }
}

/// Builds a program of Go.
fn install(module: &str, folder: &Path) -> Result<(), String> {
    if guest::on_path("go").is_none() {
        return Err("go is not installed".to_owned());
    }
    let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
    let mut command = Command::new("go");
    command.args(["install", "-trimpath", module]).env("GOBIN", folder).env("CGO_ENABLED", "0");
    guest::run(&mut command)
}

/// The text of Centrifugo's configuration. Topics are open, as those of our hub without rules are.
fn centrifugo(listen: SocketAddr, broker: Broker, broker_at: Option<SocketAddr>) -> String {
    let open = json!({
        "allow_subscribe_for_client": true,
        "allow_subscribe_for_anonymous": true,
        "allow_publish_for_client": true,
        "allow_publish_for_anonymous": true,
    });
    let mut history = open.clone();
    // As many messages as our log in memory keeps, and as long as that on a broker keeps them.
    history["name"] = json!("log");
    history["history_size"] = json!(1_000);
    history["history_ttl"] = json!("1h");
    history["force_recovery"] = json!(true);
    let mut config = json!({
        "http_server": { "address": listen.ip().to_string(), "port": listen.port() },
        "client": { "allow_anonymous_connect_without_token": true, "allowed_origins": ["*"] },
        "channel": { "without_namespace": open, "namespaces": [history] },
        "log": { "level": "error" },
    });
    match (broker, broker_at) {
        (Broker::Nats, Some(at)) => {
            config["broker"] = json!({ "enabled": true, "type": "nats", "nats": { "url": format!("nats://{at}") } });
        }
        (Broker::Redis, Some(at)) => {
            config["engine"] = json!({ "type": "redis", "redis": { "address": format!("redis://{at}") } });
        }
        _ => {}
    }
    config.to_string()
}

impl Installed<Program> {
    /// Starts a broker on the CPU of the load.
    pub(super) fn start_broker(&self, lab: &Lab<'_>, folder: &Path) -> Result<Guest, Error> {
        let failed = |why: String| Error::Failed(format!("cannot start {}: {why}", self.title()));
        let address = guest::free_address().map_err(failed)?;
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let own = folder.join(self.program.name());
        fs::create_dir_all(&own).map_err(|error| failed(format!("{}: {error}", own.display())))?;
        let mut command = Command::new(&self.path);
        if self.program == Program::NatsServer {
            command.args(["--addr", &host, "--port", &port, "--jetstream", "--store_dir"]).arg(&own);
        } else {
            command.args(["--bind", &host, "--port", &port, "--save", "", "--appendonly", "no", "--dir"]).arg(&own);
        }
        Guest::start(&mut command, address, lab.placement.load, &own.with_extension("log")).map_err(failed)
    }

    /// Starts Centrifugo on the CPU of the servers.
    pub(super) fn start_centrifugo(
        &self,
        lab: &Lab<'_>,
        folder: &Path,
        (broker, at): (Broker, Option<SocketAddr>),
    ) -> Result<Guest, Error> {
        let failed = |why: String| Error::Failed(format!("cannot start {}: {why}", self.title()));
        let address = guest::free_address().map_err(failed)?;
        let file = folder.join(format!("centrifugo-{}.json", address.port()));
        let written = fs::write(&file, centrifugo(address, broker, at));
        written.map_err(|error| failed(format!("{}: {error}", file.display())))?;
        let mut command = Command::new(&self.path);
        command.arg("--config").arg(&file).env("GOMAXPROCS", "1").current_dir(folder);
        Guest::start(&mut command, address, lab.placement.server, &file.with_extension("log")).map_err(failed)
    }
}

/// Centrifugo as a target of the load.
pub(super) fn server(guest: &Guest) -> Result<load::Server, Error> {
    let mut server = load::Server::new(&format!("ws://{}/connection/websocket", guest.address))?;
    server.pid = Some(guest.pid());
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::{Broker, centrifugo};

    #[test]
    fn the_configuration_names_its_address_and_broker() {
        let (listen, at) = ("127.0.0.1:4001".parse().unwrap(), "127.0.0.1:4002".parse().unwrap());
        let of = |broker, at| serde_json::from_str::<serde_json::Value>(&centrifugo(listen, broker, at)).unwrap();
        assert_eq!(of(Broker::Nats, Some(at))["broker"]["nats"]["url"], "nats://127.0.0.1:4002");
        assert_eq!(of(Broker::Redis, Some(at))["engine"]["redis"]["address"], "redis://127.0.0.1:4002");
        let alone = of(Broker::None, None);
        assert_eq!(alone["http_server"]["port"], 4001);
        assert!(alone["engine"].is_null() && alone["broker"].is_null());
        assert_eq!(alone["channel"]["namespaces"][0]["name"], "log");
    }
}
