//! The options that `taut serve` and `taut proxy` share, and those about messages, which only `taut serve` has.

use super::admin::AdminArguments;
use super::http2::Http2Arguments;
use super::listen::{Listen, listen, unix_mode};
use super::offload::OffloadArguments;
use super::pages;
use super::privilege::PrivilegeArguments;
use super::proxied::ProxiedArguments;
use super::tls::TlsArguments;
use crate::dashboard::DashboardArguments;
use crate::driver::DriverArguments;
use std::path::PathBuf;
use std::time::Duration;
use tautline_probe::amount;

/// The options of all servers.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CommonArguments {
    /// Address to listen at: IP:PORT (port 0 takes a free one), NAME:PORT, :PORT for all interfaces, or unix:PATH. May be repeated.
    /// It takes precedence over those of a configuration.
    #[arg(long, value_name = "ADDR", value_parser = listen)]
    pub(super) listen: Vec<Listen>,
    /// Mode of the files of Unix sockets, in octal: 660 lets a proxy of the same group connect. Default: by the process' mask.
    #[arg(long, value_name = "MODE", value_parser = unix_mode)]
    pub(super) unix_mode: Option<u32>,
    #[command(flatten)]
    pub(super) dashboard: DashboardArguments,
    #[command(flatten)]
    pub(super) admin: AdminArguments,
    /// Append a line for each HTTP request and each ended WebSocket to this file; `-` is standard output. --log-format chooses
    /// its form. Queries of paths are left out. SIGHUP opens the file again. With --user that user opens it.
    #[arg(long, value_name = "FILE")]
    pub(super) access_log: Option<PathBuf>,
    #[command(flatten)]
    pub(super) tls: TlsArguments,
    #[command(flatten)]
    pub(super) loops: LoopArguments,
    #[command(flatten)]
    pub(super) proxied: ProxiedArguments,
    #[command(flatten)]
    pub(super) privilege: PrivilegeArguments,
    /// Allow core dumps, and debuggers of this user. They contain private keys and messages.
    #[arg(long)]
    pub(super) core_dumps: bool,
    /// End when the process that started this one ends.
    #[arg(long, hide = true)]
    pub(super) with_parent: bool,
}

/// Loops and limits.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loops and limits")]
pub(super) struct LoopArguments {
    #[command(flatten)]
    pub(super) driver: DriverArguments,
    /// Loops, each with a thread and connections of its own; 0 takes one per CPU.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) shards: usize,
    #[command(flatten)]
    pub(super) http2: Http2Arguments,
    /// Pin each loop to a CPU of its own.
    #[arg(long)]
    pub(super) pin: bool,
    /// Give each loop a table of open files of its own, so that their limit (ulimit -n) holds for each loop. Connections are
    /// spread over loops by chance: take loops for a few percent more.
    #[arg(long)]
    pub(super) own_descriptors: bool,
    /// Preset of limits and deadlines.
    #[arg(long, default_value = "untrusted-internet")]
    pub(super) preset: Preset,
    /// Memory of all loops, in bytes, such as 2GiB: from 7/8 of it on new connections are refused, and above it the heaviest
    /// are closed. Default: 2, 4 or 8 GiB by --preset, and at most three quarters of the machine's memory.
    #[arg(long, value_name = "BYTES", value_parser = amount::some_bytes)]
    pub(super) memory_budget: Option<usize>,
    #[command(flatten)]
    pub(super) offload: OffloadArguments,
    /// Connections of all loops; further ones wait in the kernel's backlog.
    #[arg(long, value_name = "N", value_parser = amount::count)]
    pub(super) max_connections: Option<usize>,
    /// Seconds that connections have to close when the server is stopped.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub(super) drain: u64,
    /// Seconds for which a server that is asked to stop serves on, new connections included, while /readyz of --admin answers
    /// 503: time for load balancers to notice.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub(super) drain_delay: Duration,
}

/// Options about messages, which a proxy passes on as they are.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Messages")]
pub(super) struct MessageArguments {
    /// Longest message, in bytes; a longer one closes its connection with 1009.
    #[arg(long, value_name = "BYTES", value_parser = amount::some_bytes)]
    pub(super) max_message: Option<usize>,
    /// Accept compression (permessage-deflate) from clients that offer it.
    #[arg(long)]
    pub(super) deflate: bool,
    /// As --deflate, and keep windows from message to message for clients that allow it. Messages become smaller, and each
    /// connection takes more memory.
    #[arg(long)]
    pub(super) deflate_takeover: bool,
    /// Subprotocol to accept from clients that offer it. May be repeated, the preferred first.
    #[arg(long, value_name = "NAME")]
    pub(super) subprotocol: Vec<String>,
    /// Origin whose web pages may connect, instead of pages of the same host: `https://app.example`, or `https://*.example.org`
    /// for all names below that one; `*` or `any` allows all pages. May be repeated. Without it, a server that listens on loopback
    /// only takes pages of localhost, and those that a proxy forwards.
    #[arg(long, value_name = "SCHEME://HOST", value_parser = pages::origin)]
    pub(super) origin: Vec<String>,
    /// Say at a stop that the server restarts (1012), and tell each client when to come back: this many seconds later at the
    /// earliest, each at a time of its own. With 0 another server runs already, and clients move to it one by one.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) back_in: Option<Duration>,
}

/// A time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("{text:?} is no number of seconds"))
}

/// A preset of limits and deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Preset {
    /// For few connections that need low latency.
    LowLatency,
    /// For very many connections, most of them idle.
    ManyConnections,
    /// For servers that are open to anyone.
    UntrustedInternet,
}
