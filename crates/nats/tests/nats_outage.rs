//! Processes on one nats-server, which are killed and restarted, and so is the server.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../../hub/tests/helpers/outage.rs"]
mod outage;

use outage::Killed;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tautline::Bridge;
use tautline_hub::Log;
use tautline_nats::{NatsBroker, NatsConfig, NatsLog};

struct Nats;

impl Killed for Nats {
    fn command(port: u16, folder: &Path) -> Command {
        let program = std::env::var_os("TAUTLINE_NATS_SERVER").unwrap_or_else(|| panic!("run `cargo xtask hub`"));
        let mut command = Command::new(program);
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]).arg(folder);
        command
    }

    fn connect(port: u16) -> (Bridge, Arc<dyn Log>) {
        let nats = NatsConfig::new(format!("nats://127.0.0.1:{port}"));
        (Bridge::start(NatsBroker::new(nats.clone())).unwrap(), Arc::new(NatsLog::start(nats).unwrap()))
    }
}

#[test]
#[ignore = "a process of the other test"]
fn host() {
    outage::host::<Nats>();
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn nobody_misses_a_message_with_history_while_processes_and_the_broker_are_killed() {
    outage::survive::<Nats>();
}

#[test]
#[ignore = "needs nats-server: cargo xtask hub"]
fn the_members_of_a_process_that_is_killed_leave_with_its_lease() {
    outage::leave::<Nats>();
}
