//! Stored results as `taut bench --json` writes them, with text that would be markup if it were not escaped.

use serde_json::{Value, json};

const HOSTILE: &str = "</style></script><script>hacked=1</script><img src=x onerror=hacked=1>\"'&";

/// A file of results.
pub(super) fn results() -> String {
    let mut all = vec![json!({"machine": {
        "cpu": HOSTILE, "cores": 2, "arch": "x86_64", "kernel": "6.1", "features": ["aes", "avx2"],
        "aead": {"AES-128-GCM": "aws-lc"}, "memory": 25_000_000_000_u64, "governor": null, "hypervisor": null,
        "load_1min": 0.1, "libraries": {"rustls": "0.23", "tautline": HOSTILE}, "commit": HOSTILE, "rustc": "1.95",
        "date": "2026-01-01T00:00:00Z",
    }})];
    all.extend(offload());
    all.extend(scaling());
    all.extend(stages());
    all.extend(others());
    all.iter().map(|object| format!("{object}\n")).collect()
}

fn outcome(suite: &str) -> Value {
    json!({"outcome": {"suite": suite, "effort": "quick", "seconds": 12.5, "text": format!("{suite} {HOSTILE}"),
        "warnings": ["skipped 1. wolfssl xdp-spin: wolfssl is not built in", HOSTILE], "advice": HOSTILE}})
}

fn line(suite: &str, case: &Value, metric: &str, value: f64, published: Option<f64>) -> Value {
    let runs = [value, value * 1.02, value * 0.99];
    json!({"suite": suite, "case": case, "metric": metric, "value": value, "unit": "", "runs": runs,
        "published": published})
}

fn offload() -> Vec<Value> {
    let mut all = vec![outcome("offload")];
    let loads = [(64, 50), (64, 100), (64, 200), (64, 500), (256, 100), (1024, 100), (4096, 100)];
    for (size, connections) in loads {
        for (execution, share) in [("inline", 1.0), ("always-offload", 0.4), ("gated", 0.98)] {
            let case = json!({"protocol": "wss", "tls": "fused", "size": size, "connections": connections,
                "pipeline": 1, "execution": execution, "threads": 1});
            all.push(line("offload", &case, "throughput", 150_000.0 * share, Some(186_513.0)));
            all.push(line("offload", &case, "latency_mean", 400.0 / share, None));
        }
    }
    all
}

fn scaling() -> Vec<Value> {
    let mut all = vec![outcome("scaling")];
    for model in ["shared-loop", "loop-per-core"] {
        for (threads, rate) in [(1, 2_000.0), (2, 2_900.0), (4, 3_100.0)] {
            let case = json!({"protocol": "wss", "tls": "boringssl", "size": 262_144, "connections": 20,
                "execution": "inline", "model": model, "threads": threads, "direction": "write"});
            all.push(line("scaling", &case, "transfer", rate, Some(500.0)));
        }
    }
    all
}

fn stages() -> Vec<Value> {
    let mut all = vec![outcome("stages")];
    for (mode, us) in [(None, 1.0), (Some(7), 2.0), (Some(8), 2.2), (Some(9), 2.1)] {
        let mode = mode.map_or_else(String::new, |mode| format!(", mode {mode}"));
        for (stage, share) in
            [("nic", 3.0), ("read", 1.0), ("tls", 0.5), ("parse", 0.1), ("callback", 0.1), ("total", 5.0)]
        {
            let case = json!({"protocol": "wss", "tls": "openssl", "driver": "epoll", "connections": 1,
                "direction": "read", "stage": stage, "setup": format!("market over loopback{mode}")});
            for (metric, factor) in [("latency_mean", 1.0), ("latency_p50", 0.9), ("latency_p99", 4.0)] {
                all.push(line("stages", &case, metric, us * share * factor, None));
            }
        }
    }
    all
}

fn others() -> Vec<Value> {
    let mut all = vec![outcome("peers"), outcome("latency")];
    for peer in [None, Some("yawc"), Some(HOSTILE)] {
        let case = json!({"protocol": "wss", "tls": "fused", "size": 64, "connections": 100, "pipeline": 1,
            "peer": peer});
        all.push(line("peers", &case, "server_cpu_per_msg", 4.5, None));
        let case = json!({"protocol": "wss", "tls": "fused", "size": 64, "setup": "rate=60%", "peer": peer});
        for (metric, us) in [("latency_p50", 40.0), ("latency_p99", 200.0), ("latency_p999", 900.0)] {
            all.push(line("latency", &case, metric, us, None));
        }
    }
    for (value, target) in [(1.1, json!({"at_most": 1.13})), (0.8, json!({"at_least": 1.0}))] {
        let mut judged = line("peers", &json!({"protocol": "wss"}), "ratio_to_peer", value, None);
        (judged["target"], judged["name"]) = (target, json!(format!("64 B: {HOSTILE}")));
        all.push(judged);
    }
    all
}
