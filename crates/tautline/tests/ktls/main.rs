//! Kernel TLS, on kernels that have it, as in the virtual machine of `cargo xtask vm-test`. On others one test checks the
//! fallback.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../common/mod.rs"]
mod common;
mod echo;
mod endings;
mod keys;
mod peer;

use common::{App, Started, logs, serve_driver};
use std::collections::HashMap;
use tautline::layers::io::kernel;
use tautline::{Config, DriverConfig, KernelTls, SlowConsumer};

/// The choices of directions, except `auto`.
const HALVES: [KernelTls; 3] = [KernelTls::Transmit, KernelTls::Receive, KernelTls::Both];

/// Whether this kernel has TLS. If `TAUTLINE_KTLS` is set, it must.
fn has_ktls() -> bool {
    let found = kernel::probe();
    if let Err(error) = &found {
        assert!(std::env::var_os("TAUTLINE_KTLS").is_none(), "{error}");
        eprintln!("skipped: {error}");
    }
    found.is_ok()
}

/// Whether the kernel takes new keys. If `TAUTLINE_KTLS` is `rekeys`, it must.
fn rekeys() -> bool {
    let found = kernel::probe().unwrap().rekeys;
    assert!(found || std::env::var("TAUTLINE_KTLS").as_deref() != Ok("rekeys"), "the kernel takes no new keys");
    found
}

fn driver(name: &str, halves: KernelTls) -> DriverConfig {
    name.parse::<DriverConfig>().unwrap().with_kernel_tls(halves).unwrap()
}

fn config() -> Config {
    let mut config = common::server::config();
    config.limits.max_message = 2 << 20;
    config.slow_consumer = SlowConsumer::Disconnect(16 << 20);
    config
}

/// A server that leaves records to the kernel.
fn serve(io: &str, halves: KernelTls, app: App) -> Started {
    serve_driver(driver(io, halves), config(), app)
}

/// The kernel's counters (`/proc/net/tls_stat`). They show whether the kernel or user space did the records.
fn counters() -> HashMap<String, u64> {
    let text = std::fs::read_to_string("/proc/net/tls_stat").unwrap();
    let pair = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Keys that the kernel took for sending and for receiving while `act` ran.
fn taken(act: impl FnOnce()) -> (u64, u64) {
    let before = counters();
    act();
    let after = counters();
    let grown = |name: &str| after[name] - before[name];
    (grown("TlsTxSw"), grown("TlsRxSw"))
}

/// The keys that one connection gives the kernel.
fn expected(halves: KernelTls) -> (u64, u64) {
    match halves {
        KernelTls::Off => (0, 0),
        KernelTls::Transmit => (1, 0),
        KernelTls::Receive => (0, 1),
        KernelTls::Both => (1, 1),
        KernelTls::Auto => (1, u64::from(rekeys())),
    }
}

#[test]
fn without_kernel_tls_all_records_stay_in_user_space() {
    if kernel::probe().is_ok() {
        return;
    }
    let server = serve("epoll", KernelTls::Both, App::default());
    logs::expect(&["all records stay in user space", "modprobe tls"]);
    server.serves();
    server.survives();
}
