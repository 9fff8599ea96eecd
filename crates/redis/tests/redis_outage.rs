//! Processes on one redis-server, which are killed and restarted, and so is the server.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

#[path = "../../hub/tests/helpers/outage.rs"]
mod outage;

use outage::Killed;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tautline::Bridge;
use tautline_hub::Log;
use tautline_redis::{RedisBroker, RedisConfig, RedisLog};

struct Redis;

impl Killed for Redis {
    fn command(port: u16, folder: &Path) -> Command {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--dir"]).arg(folder);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command
    }

    fn connect(port: u16) -> (Bridge, Arc<dyn Log>) {
        let redis = RedisConfig::new(format!("redis://127.0.0.1:{port}"));
        (Bridge::start(RedisBroker::new(redis.clone())).unwrap(), Arc::new(RedisLog::start(redis).unwrap()))
    }
}

#[test]
#[ignore = "a process of the other test"]
fn host() {
    outage::host::<Redis>();
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn nobody_misses_a_message_with_history_while_processes_and_the_broker_are_killed() {
    outage::survive::<Redis>();
}

#[test]
#[ignore = "needs redis-server: cargo xtask redis"]
fn the_members_of_a_process_that_is_killed_leave_with_its_lease() {
    outage::leave::<Redis>();
}
