use crate::stats::Summary;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// What carried the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Bytes over TCP, without frames: the limit that the others are judged by.
    Tcp,
    /// WebSocket over TCP.
    Ws,
    /// WebSocket over TLS.
    Wss,
}

impl Protocol {
    /// `tcp`, `ws` or `wss`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }
}

/// What was measured: only what applies is set, and only that is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Case {
    /// What carried the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// TLS engine: `rustls`, `fused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// Driver: `epoll`, `uring`, `select`, `spin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Payload bytes per message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Concurrent connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Messages in flight per connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<u64>,
    /// Subscribers of a topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribers: Option<u64>,
    /// Where TLS runs: `inline`, `always-offload`, `gated`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
    /// `loop-per-core` or `shared-loop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Threads of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u64>,
    /// How records meet buffers: `memory-bio`, `window-bio`, `direct`, `fused` and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// `read` or `write`, `seal` or `open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Key of the certificate: `rsa2048`, `p256`, `ed25519`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Key exchange group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether handshakes resumed earlier sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
    /// Part of the way from wire to callback: `nic`, `loop`, `read`, `tls`, `parse`, `callback`, `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Network stack: `kernel`, `xdp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
    /// Other implementation that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Circumstances: `quiet`, `storm`, `rate=5000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
}

/// The name and the unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Messages answered per second.
    Throughput,
    /// Payload that the server moved per second, in and out, in 10^6 bytes.
    Transfer,
    /// CPU time of the server's process per message.
    ServerCpuPerMsg,
    /// CPU time of the thread per message, where there is neither socket nor server.
    CpuPerMsg,
    /// Least latency.
    LatencyMin,
    /// Mean latency.
    LatencyMean,
    /// Standard deviation of the latency.
    LatencyStddev,
    /// Median latency.
    LatencyP50,
    /// 90 % of the latencies lie at or below.
    LatencyP90,
    /// 95 % of the latencies lie at or below.
    LatencyP95,
    /// 99 % of the latencies lie at or below.
    LatencyP99,
    /// 99.9 % of the latencies lie at or below.
    LatencyP999,
    /// Greatest latency.
    LatencyMax,
    /// Connections made, upgraded and closed per second.
    Handshakes,
    /// Connections refused per second.
    Refused,
    /// CPU time of the server's process per such connection.
    ServerCpuPerHandshake,
    /// CPU time of the client's thread per such connection.
    ClientCpuPerHandshake,
    /// Of both.
    CpuPerHandshake,
    /// What the server's resident memory grew by per connection.
    RssPerConnection,
    /// CPU time of one signature with the certificate's key.
    CpuPerSignature,
    /// Server CPU per full handshake over that of the signature alone.
    RatioToSignature,
    /// Server CPU per full handshake over that of a resumed one.
    RatioToResumed,
    /// A rate or a CPU time over that of a loop that does all of its TLS itself.
    RatioToInline,
    /// A loop per core's rate over that of threads that share a poller.
    RatioToSharedLoop,
    /// The rate of two loops over that of one.
    RatioToOneLoop,
    /// Server CPU or a latency over that of the same by the kernel's TCP.
    RatioToKernel,
    /// CPU time for each message with the probe of messages' stages, over that without.
    RatioToUnprobed,
    /// A latency over the same one without the storm.
    RatioToQuiet,
    /// Server CPU per message over that of plain WebSocket.
    RatioToPlain,
    /// Server CPU per message over that of the cheapest bare TCP echo.
    RatioToLimit,
    /// CPU per message over what cannot be saved: the bare AEAD, or it and the same without TLS.
    RatioToAead,
    /// Server CPU per message over that of the best of several peers.
    RatioToPeer,
    /// CPU per message over that of another engine on the same work.
    RatioToEngine,
    /// A rate over that of OpenSSL with memory BIOs on the same work.
    RatioToMemoryBio,
}

impl Metric {
    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Transfer => "transfer",
            Self::ServerCpuPerMsg => "server_cpu_per_msg",
            Self::CpuPerMsg => "cpu_per_msg",
            Self::LatencyMin => "latency_min",
            Self::LatencyMean => "latency_mean",
            Self::LatencyStddev => "latency_stddev",
            Self::LatencyP50 => "latency_p50",
            Self::LatencyP90 => "latency_p90",
            Self::LatencyP95 => "latency_p95",
            Self::LatencyP99 => "latency_p99",
            Self::LatencyP999 => "latency_p999",
            Self::LatencyMax => "latency_max",
            Self::Handshakes => "handshakes",
            Self::Refused => "refused",
            Self::ServerCpuPerHandshake => "server_cpu_per_handshake",
            Self::ClientCpuPerHandshake => "client_cpu_per_handshake",
            Self::CpuPerHandshake => "cpu_per_handshake",
            Self::RssPerConnection => "rss_per_connection",
            Self::CpuPerSignature => "cpu_per_signature",
            Self::RatioToSignature => "ratio_to_signature",
            Self::RatioToResumed => "ratio_to_resumed",
            Self::RatioToInline => "ratio_to_inline",
            Self::RatioToSharedLoop => "ratio_to_shared_loop",
            Self::RatioToOneLoop => "ratio_to_one_loop",
            Self::RatioToKernel => "ratio_to_kernel",
            Self::RatioToUnprobed => "ratio_to_unprobed",
            Self::RatioToQuiet => "ratio_to_quiet",
            Self::RatioToPlain => "ratio_to_plain",
            Self::RatioToLimit => "ratio_to_limit",
            Self::RatioToAead => "ratio_to_aead",
            Self::RatioToPeer => "ratio_to_peer",
            Self::RatioToEngine => "ratio_to_engine",
            Self::RatioToMemoryBio => "ratio_to_memory_bio",
        }
    }

    /// Unit in results; `x` is a ratio.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "msg/s",
            Self::Transfer => "MB/s",
            Self::Handshakes | Self::Refused => "1/s",
            Self::RssPerConnection => "B",
            Self::RatioToSignature
            | Self::RatioToResumed
            | Self::RatioToInline
            | Self::RatioToSharedLoop
            | Self::RatioToOneLoop
            | Self::RatioToKernel
            | Self::RatioToUnprobed
            | Self::RatioToQuiet
            | Self::RatioToPlain
            | Self::RatioToLimit
            | Self::RatioToAead
            | Self::RatioToPeer
            | Self::RatioToEngine
            | Self::RatioToMemoryBio => "x",
            _ => "us",
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What a value is held to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// It must not be greater.
    AtMost(f64),
    /// It must not be less.
    AtLeast(f64),
}

impl Target {
    /// Whether `value` reaches it.
    #[must_use]
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

/// One result: the median over rounds, with every round's value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Suite: `overview`, `echo`.
    pub suite: String,
    /// What was measured.
    pub case: Case,
    /// What `value` is.
    pub metric: Metric,
    /// Median of `runs`.
    pub value: f64,
    /// Unit of `value`, `runs` and `published`.
    pub unit: &'static str,
    /// One value per round, in the order measured.
    pub runs: Vec<f64>,
    /// The figure that an earlier report gives for such a case on another machine.
    pub published: Option<f64>,
    /// What `value` is held to, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
}

impl Line {
    /// The line for `runs`; `None` where there are none.
    #[must_use]
    pub fn new(suite: &str, case: &Case, metric: Metric, runs: &[f64]) -> Option<Self> {
        Some(Self {
            suite: suite.to_owned(),
            case: case.clone(),
            metric,
            value: Summary::of(runs)?.median,
            unit: metric.unit(),
            runs: runs.to_vec(),
            published: crate::published::lookup(suite, case, metric),
            target: None,
        })
    }
}

/// Writes the machine's facts first, then one object per line.
///
/// # Errors
/// What `out` says.
pub fn write_json(out: &mut impl Write, machine: &crate::Machine, lines: &[Line]) -> io::Result<()> {
    #[derive(Serialize)]
    struct First<'a> {
        machine: &'a crate::Machine,
    }
    serde_json::to_writer(&mut *out, &First { machine })?;
    out.write_all(b"\n")?;
    for line in lines {
        serde_json::to_writer(&mut *out, line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_line_has_the_documented_shape() {
        let case = Case {
            protocol: Some(Protocol::Wss),
            tls: Some("rustls".into()),
            size: Some(64),
            connections: Some(7),
            resumed: Some(false),
            ..Case::default()
        };
        let line = Line::new("echo", &case, Metric::ServerCpuPerMsg, &[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            serde_json::to_value(&line).unwrap(),
            json!({
                "suite": "echo",
                "case": {"protocol": "wss", "tls": "rustls", "size": 64, "connections": 7, "resumed": false},
                "metric": "server_cpu_per_msg",
                "value": 2.0,
                "unit": "us",
                "runs": [3.0, 1.0, 2.0],
                "published": null,
            })
        );
    }

    #[test]
    fn a_target_is_written_where_there_is_one() {
        let line = Line::new("limits", &Case::default(), Metric::RatioToLimit, &[1.0]).unwrap();
        let line = Line { target: Some(Target::AtMost(1.13)), ..line };
        assert_eq!(serde_json::to_value(&line).unwrap()["target"], json!({"at_most": 1.13}));
        assert!(Target::AtMost(1.13).is_met_by(1.13) && !Target::AtMost(1.13).is_met_by(1.14));
        assert!(Target::AtLeast(10.0).is_met_by(10.0) && !Target::AtLeast(10.0).is_met_by(9.9));
    }

    #[test]
    fn no_runs_make_no_line() {
        assert_eq!(Line::new("echo", &Case::default(), Metric::Throughput, &[]), None);
    }

    #[test]
    fn the_machine_comes_first_and_each_object_has_its_line() {
        let line = Line::new("limits", &Case::default(), Metric::RatioToLimit, &[1.5]).unwrap();
        let mut out = Vec::new();
        write_json(&mut out, &crate::Machine::here(), &[line.clone(), line]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(objects.len(), 3);
        for fact in ["cpu", "cores", "kernel", "features", "memory", "libraries", "commit", "rustc", "date"] {
            assert!(!objects[0]["machine"][fact].is_null(), "{fact} is missing");
        }
        assert_eq!(objects[1]["metric"], "ratio_to_limit");
        assert_eq!(objects[1]["unit"], "x");
    }
}
