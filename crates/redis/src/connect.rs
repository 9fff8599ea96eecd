//! Connections to a server or cluster: one for commands, and one that hears channels.
//!
//! They are two because a cluster that moves a slot ends subscriptions unasked. The client takes that for an answer, so answers to
//! commands behind it would be those of others.

use crate::config::RedisConfig;
use crate::refusal;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, FromRedisValue, PushInfo, RedisError, RedisFuture, Value, cmd,
};
use std::sync::Once;
use std::time::Duration;
use tokio::sync::mpsc;

/// The longest wait for a connection, and for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum NotConnected {
    /// A wait may help.
    Away(String),
    /// Only an operator helps.
    Refused(String),
}

impl NotConnected {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Away(reason) | Self::Refused(reason) => reason,
        }
    }
}

impl From<RedisError> for NotConnected {
    fn from(error: RedisError) -> Self {
        refusal::of_error(&error).map_or_else(|| Self::Away(error.to_string()), Self::Refused)
    }
}

/// A server, or all nodes of a cluster.
#[derive(Clone)]
pub(crate) enum Link {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Both connections.
pub(crate) struct Connected {
    pub(crate) commands: Link,
    pub(crate) ears: Link,
    /// Messages of channels, and the end of a connection.
    pub(crate) heard: mpsc::UnboundedReceiver<PushInfo>,
    /// Whether the server has sharded channels.
    pub(crate) has_shards: bool,
}

/// Connects to the first server that is no replica, or to the cluster.
pub(crate) async fn connect(config: &RedisConfig) -> Result<Connected, NotConnected> {
    // With more than one in the program, rustls does not choose by itself.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let infos = config.infos().map_err(|error| NotConnected::Refused(error.to_string()))?;
    let mut failed = None;
    for info in &infos {
        match connect_to(config, info, &infos).await {
            Ok(connected) => return Ok(connected),
            // A refusal says more than the silence of another server.
            Err(_) if matches!(failed, Some(NotConnected::Refused(_))) => {}
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| NotConnected::Refused("no server is named".to_owned())))
}

async fn connect_to(
    config: &RedisConfig,
    info: &ConnectionInfo,
    all: &[ConnectionInfo],
) -> Result<Connected, NotConnected> {
    let client = config.client(info.clone())?;
    let (tell, heard) = mpsc::unbounded_channel();
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE))
        .set_push_sender(tell.clone());
    let first = client.get_multiplexed_async_connection_with_config(&settings).await?;
    let mut commands = Link::Single(first);
    let info: String = commands.ask(cmd("INFO").arg("server")).await?;
    let version = version(&info);
    if version < refusal::OLDEST {
        let what = format!("the server has version {}.{}", version.0, version.1);
        return Err(NotConnected::Refused(refusal::too_old(&what)));
    }
    let has_shards = version.0 >= 7;
    let memory: String = commands.ask(cmd("INFO").arg("memory")).await?;
    if field(&memory, "maxmemory") != Some("0") && field(&memory, "maxmemory_policy") != Some("noeviction") {
        static WARNING: Once = Once::new();
        WARNING.call_once(|| log::warn!("Redis forgets messages when it is full: set `maxmemory-policy noeviction`"));
    }
    if field(&info, "redis_mode") == Some("cluster") {
        let cluster = |push: Option<mpsc::UnboundedSender<PushInfo>>| {
            let builder = ClusterClient::builder(all.iter().cloned()).connection_timeout(PATIENCE);
            let builder = builder.response_timeout(PATIENCE).retries(3);
            let builder = match config.certificates()? {
                Some(certificates) => builder.certs(certificates),
                None => builder,
            };
            match push {
                Some(push) => builder.push_sender(push).build(),
                None => builder.build(),
            }
        };
        let (commands, ears) = (cluster(None)?, cluster(Some(tell))?);
        let commands = Link::Cluster(commands.get_async_connection().await?);
        return Ok(Connected { commands, ears: Link::Cluster(ears.get_async_connection().await?), heard, has_shards });
    }
    let role: String = commands.ask(cmd("INFO").arg("replication")).await?;
    if field(&role, "role") != Some("master") {
        let reason = "the server is a replica: name the master, or all servers with commas between them";
        return Err(NotConnected::Refused(reason.to_owned()));
    }
    let ears = Link::Single(client.get_multiplexed_async_connection_with_config(&settings).await?);
    Ok(Connected { commands, ears, heard, has_shards })
}

impl Link {
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        command.query_async(self).await
    }

    /// Sends a command to the server that has this key.
    pub(crate) async fn ask_holder(&mut self, command: &Cmd, key: &str) -> Result<Value, RedisError> {
        match self {
            Self::Single(link) => link.send_packed_command(command).await?.extract_error(),
            Self::Cluster(link) => {
                let route = Route::with_key(key, SlotAddr::Master);
                let route = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                link.route_command(command.clone(), route).await
            }
        }
    }
}

impl ConnectionLike for Link {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Single(link) => link.req_packed_command(command),
            Self::Cluster(link) => link.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Single(link) => link.req_packed_commands(commands, offset, count),
            Self::Cluster(link) => link.req_packed_commands(commands, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Single(link) => link.get_db(),
            Self::Cluster(link) => link.get_db(),
        }
    }
}

/// A field of what INFO says.
pub(crate) fn field<'i>(info: &'i str, name: &str) -> Option<&'i str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn version(info: &str) -> (u32, u32) {
    let mut parts = field(info, "redis_version").unwrap_or_default().split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{field, version};

    #[test]
    fn fields_of_the_server_are_found_by_their_whole_names() {
        let info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n";
        assert_eq!(version(info), (7, 0));
        assert_eq!(field(info, "redis_mode"), Some("standalone"));
        assert_eq!(field(info, "redis"), None);
        assert_eq!(version("nothing"), (0, 0));
    }
}
