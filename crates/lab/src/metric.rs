use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use tautline_measure::named;

named! {
    /// A measured quantity. Results list the metrics of a case in this order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Metric {
        /// Messages answered per second.
        Throughput = "throughput",
        /// Payload that the server moved per second, in and out, in 10^6 bytes.
        Transfer = "transfer",
        /// Payload that arrived per second of CPU time of all its processes, in 10^6 bytes.
        TransferPerCpu = "transfer_per_cpu",
        /// CPU time of the server's process per message.
        ServerCpuPerMsg = "server_cpu_per_msg",
        /// Part of that time in the process's own code, to a few percent.
        ServerUserPerMsg = "server_user_per_msg",
        /// Part of that time in the kernel, to a few percent.
        ServerKernelPerMsg = "server_kernel_per_msg",
        /// CPU time of the measuring thread per message; measured in memory, without socket and server.
        CpuPerMsg = "cpu_per_msg",
        /// Least latency.
        LatencyMin = "latency_min",
        /// Mean latency.
        LatencyMean = "latency_mean",
        /// Standard deviation of the latency.
        LatencyStddev = "latency_stddev",
        /// Median latency.
        LatencyP50 = "latency_p50",
        /// 90th percentile of the latency.
        LatencyP90 = "latency_p90",
        /// 95th percentile of the latency.
        LatencyP95 = "latency_p95",
        /// 99th percentile of the latency.
        LatencyP99 = "latency_p99",
        /// 99.9th percentile of the latency.
        LatencyP999 = "latency_p999",
        /// Greatest latency.
        LatencyMax = "latency_max",
        /// The percentile of the latency that the case's setup names: `p99.99`.
        Latency = "latency",
        /// Connections opened, upgraded and closed per second.
        Handshakes = "handshakes",
        /// Connections opened per second, to be held.
        Opened = "opened",
        /// Errors of a load that goes on in spite of them; the case's setup names their kind.
        Errors = "errors",
        /// Processes of a server after a load that changed it.
        Processes = "processes",
        /// Connections refused per second.
        Refused = "refused",
        /// CPU time of the server's process per connection of [`Handshakes`](Self::Handshakes).
        ServerCpuPerHandshake = "server_cpu_per_handshake",
        /// CPU time of the client's thread per connection of [`Handshakes`](Self::Handshakes).
        ClientCpuPerHandshake = "client_cpu_per_handshake",
        /// CPU time of both ends per connection of [`Handshakes`](Self::Handshakes).
        CpuPerHandshake = "cpu_per_handshake",
        /// Growth of the server's resident memory per connection.
        RssPerConnection = "rss_per_connection",
        /// Resident memory of the server.
        Rss = "rss",
        /// Growth of the load's resident memory per connection.
        LoadRssPerConnection = "load_rss_per_connection",
        /// Growth of the kernel's memory per connection, for both of its ends.
        KernelPerConnection = "kernel_per_connection",
        /// Time until all connections have ended after the server was told to stop.
        DrainTime = "drain_time",
        /// Time until all clients that lost their server are connected to another one.
        ReturnTime = "return_time",
        /// CPU time of one signature with the certificate's key.
        CpuPerSignature = "cpu_per_signature",
        /// Server CPU per full handshake over that of the signature alone.
        RatioToSignature = "ratio_to_signature",
        /// Server CPU per full handshake over that of a resumed one.
        RatioToResumed = "ratio_to_resumed",
        /// A rate or a CPU time over that of a loop that does all of its TLS itself.
        RatioToInline = "ratio_to_inline",
        /// The rate of a loop per core over that of threads that share a poller.
        RatioToSharedLoop = "ratio_to_shared_loop",
        /// A latency with many connections over the same latency with few.
        RatioToFew = "ratio_to_few",
        /// The rate of two loops over that of one.
        RatioToOneLoop = "ratio_to_one_loop",
        /// Server CPU or a latency over the figure of the same composition on the kernel's TCP.
        RatioToKernel = "ratio_to_kernel",
        /// Server CPU per message with the probe of message stages over that without.
        RatioToUnprobed = "ratio_to_unprobed",
        /// A latency during a storm of handshakes over the same latency without one.
        RatioToQuiet = "ratio_to_quiet",
        /// The time until clients are back over that after their server was killed.
        RatioToKilled = "ratio_to_killed",
        /// Server CPU per message over that of plain WebSocket.
        RatioToPlain = "ratio_to_plain",
        /// Server CPU per message over that of the cheapest bare TCP echo.
        RatioToLimit = "ratio_to_limit",
        /// CPU per message over a lower bound: the bare AEAD, alone or plus an echo without TLS.
        RatioToAead = "ratio_to_aead",
        /// Server CPU per message, a latency or memory: ours over that of the best peer. Also that of the best peer over ours.
        RatioToPeer = "ratio_to_peer",
        /// Payload of replies over their bytes on the wire, frames and records included.
        RatioToWire = "ratio_to_wire",
        /// CPU per message over that of another engine on the same work.
        RatioToEngine = "ratio_to_engine",
        /// Messages per CPU second over those of OpenSSL with memory BIOs on the same work.
        RatioToMemoryBio = "ratio_to_memory_bio",
    }
}

impl Metric {
    /// The metric of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Whether more is better, or less; `None` for ratios, extremes and deviations, which follow from other figures or from
    /// single messages.
    pub(crate) const fn is_better_if_greater(self) -> Option<bool> {
        match self {
            Self::Throughput | Self::Transfer | Self::Handshakes => Some(true),
            Self::ServerCpuPerMsg
            | Self::CpuPerMsg
            | Self::LatencyMean
            | Self::LatencyP50
            | Self::LatencyP99
            | Self::ServerCpuPerHandshake
            | Self::ClientCpuPerHandshake
            | Self::CpuPerHandshake
            | Self::RssPerConnection
            | Self::Rss
            | Self::LoadRssPerConnection
            | Self::KernelPerConnection
            | Self::DrainTime
            | Self::ReturnTime
            | Self::CpuPerSignature => Some(false),
            _ => None,
        }
    }

    /// Unit in results; `x` is a ratio.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "msg/s",
            Self::Transfer | Self::TransferPerCpu => "MB/s",
            Self::Handshakes | Self::Opened | Self::Refused => "1/s",
            Self::Errors | Self::Processes => "1",
            Self::Rss | Self::RssPerConnection | Self::LoadRssPerConnection | Self::KernelPerConnection => "B",
            ratio if ratio.name().starts_with("ratio_") => "x",
            _ => "us",
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format_args!("{name:?} is no metric of this version")))
    }
}
