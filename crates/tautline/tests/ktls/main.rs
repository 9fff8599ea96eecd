//! Kernel TLS: on kernels that have it, as in the virtual machine of `cargo xtask vm-test`; on others, what happens without.
#![expect(clippy::unwrap_used, clippy::panic, reason = "all of this runs inside tests")]

#[path = "../common/mod.rs"]
mod common;
mod echo;
mod endings;
mod keys;
mod peer;

use common::{App, Started, logs, serve_way};
use std::collections::HashMap;
use tautline::layers::io::kernel;
use tautline::{Config, Io, KernelTls, SlowConsumer, Spin, Way};

/// What a test asks of the kernel, by its name.
const HALVES: [KernelTls; 3] = [KernelTls::Transmit, KernelTls::Receive, KernelTls::Both];

/// Whether this kernel has TLS. Where it must have, as `TAUTLINE_KTLS` says, tests that need it fail without.
fn has_ktls() -> bool {
    let found = kernel::probe();
    if let Err(error) = &found {
        assert!(std::env::var_os("TAUTLINE_KTLS").is_none(), "{error}");
        eprintln!("skipped: {error}");
    }
    found.is_ok()
}

/// Whether it takes new keys, as it must where `TAUTLINE_KTLS` is `rekeys`.
fn rekeys() -> bool {
    let found = kernel::probe().unwrap().rekeys;
    assert!(found || std::env::var("TAUTLINE_KTLS").as_deref() != Ok("rekeys"), "the kernel takes no new keys");
    found
}

fn way(io: Io, halves: KernelTls) -> Way {
    Way::new(io, Spin::default()).with_kernel_tls(halves)
}

fn config() -> Config {
    let mut config = common::server::config();
    config.limits.max_message = 2 << 20;
    config.slow_consumer = SlowConsumer::Disconnect(16 << 20);
    config
}

/// A server that leaves records to the kernel.
fn serve(io: Io, halves: KernelTls, app: App) -> Started {
    serve_way(way(io, halves), config(), app)
}

/// The kernel's counters (`/proc/net/tls_stat`), so that no test passes in user space.
fn counters() -> HashMap<String, u64> {
    let text = std::fs::read_to_string("/proc/net/tls_stat").unwrap();
    let pair = |line: &str| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// How often the kernel took keys for sending and for receiving while `act` ran.
fn taken(act: impl FnOnce()) -> (u64, u64) {
    let before = counters();
    act();
    let after = counters();
    let grown = |name: &str| after[name] - before[name];
    (grown("TlsTxSw"), grown("TlsRxSw"))
}

/// What one connection of a server adds to the counters.
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
fn without_it_all_stays_in_user_space() {
    if kernel::probe().is_ok() {
        return;
    }
    let server = serve(Io::Epoll, KernelTls::Both, App::default());
    logs::expect(&["all records stay in user space", "modprobe tls"]);
    server.serves();
    server.survives();
}
