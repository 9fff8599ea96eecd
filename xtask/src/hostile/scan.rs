//! A scan of our TLS by sslyze, from PyPI, with no finding above the policy.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::outcome::{Outcome, none_of};
use crate::process::{run_logged, succeeds};
use crate::stage::Context;
use crate::taut::{self, Scheme};
use crate::{install, paths};

/// The scanner and its version.
const SSLYZE: &str = "sslyze==6.3.1";

/// The protocols that no server of ours offers.
const REFUSED: [&str; 4] = ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"];

/// Parts of the report, and the value in it that would be a finding. A part that the scanner could not do is one too.
const FINDINGS: [(&str, &str, &str); 6] = [
    ("heartbleed", "/is_vulnerable_to_heartbleed", "true"),
    ("openssl_ccs_injection", "/is_vulnerable_to_ccs_injection", "true"),
    ("robot", "/robot_result", "\"VULNERABLE_WEAK_ORACLE\""),
    ("session_renegotiation", "/is_vulnerable_to_client_renegotiation_dos", "true"),
    ("tls_compression", "/supports_compression", "true"),
    ("tls_1_3_early_data", "/supports_early_data", "true"),
];

/// Scans a server of each engine.
pub(crate) fn scan(context: &Context) -> Outcome {
    let folder = paths::own("sslyze");
    let version = install::version("python3", "--version")?;
    let python = folder.join("bin/python");
    let works = |_: &std::path::Path| succeeds(&python.to_string_lossy(), &["-c", "import sslyze"]);
    install::once(&folder, &format!("{version}{SSLYZE}"), works, |folder| {
        install::python(folder, &[SSLYZE], &paths::log("sslyze-install"), context.deadline)
    })?;
    let certificates = taut::certificates(context)?;
    let mut wrong = Vec::new();
    for engine in ["fused", "rustls"] {
        let server = taut::serve(&format!("scan-{engine}"), Scheme::Wss, &certificates, &["--tls", engine])?;
        let report = paths::own("logs").join(format!("scan-{engine}.json"));
        let mut command = Command::new(folder.join("bin/sslyze"));
        command.args(["--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3", "--heartbleed"]);
        command.args(["--openssl_ccs", "--robot", "--reneg", "--compression", "--early_data", "--fallback"]);
        command.args(["--elliptic_curves", "--certinfo", "--resum", "--mozilla_config", "disable", "--json_out"]);
        command.arg(&report).arg(format!("127.0.0.1:{}", server.port));
        run_logged(&mut command, &paths::log(&format!("scan-{engine}")), context.deadline)?;
        let report = serde_json::from_slice(&fs::read(&report)?).map_err(|error| error.to_string())?;
        wrong.extend(findings(&report).into_iter().map(|finding| format!("{engine}: {finding}")));
    }
    none_of(&wrong, "; ")
}

/// Compares a report with the policy: TLS 1.2 and 1.3, forward secrecy and AEADs only, nothing known as vulnerable.
fn findings(report: &Value) -> Vec<String> {
    let result = &report["server_scan_results"][0]["scan_result"];
    let mut wrong = Vec::new();
    let part = |name: &str| {
        let part = &result[name];
        let done = part["status"] == "COMPLETED";
        if done { Ok(&part["result"]) } else { Err(format!("{name}: {}", part["status"])) }
    };
    for protocol in REFUSED {
        match part(&format!("{protocol}_cipher_suites")) {
            Ok(result) if result["accepted_cipher_suites"].as_array().is_some_and(Vec::is_empty) => {}
            Ok(_) => wrong.push(format!("{protocol} is accepted")),
            Err(reason) => wrong.push(reason),
        }
    }
    for protocol in ["tls_1_2", "tls_1_3"] {
        match part(&format!("{protocol}_cipher_suites")) {
            Ok(result) => {
                let suites: Vec<&Value> = result["accepted_cipher_suites"].as_array().into_iter().flatten().collect();
                let names = suites.iter().filter_map(|suite| suite["cipher_suite"]["name"].as_str());
                wrong.extend(names.filter(|name| !is_strong(name)).map(|name| format!("the suite {name}")));
                if suites.is_empty() {
                    wrong.push(format!("no suite of {protocol} is accepted"));
                }
            }
            Err(reason) => wrong.push(reason),
        }
    }
    for (name, pointer, finding) in FINDINGS {
        match part(name) {
            Ok(result) => {
                let value = result.pointer(pointer).map(Value::to_string);
                if value.as_deref().is_none_or(|value| value == finding) {
                    wrong.push(format!("{name}: {value:?}"));
                }
            }
            Err(reason) => wrong.push(reason),
        }
    }
    wrong
}

/// Whether a suite has forward secrecy and an AEAD.
fn is_strong(name: &str) -> bool {
    let is_tls13 = ["TLS_AES_", "TLS_CHACHA20_"].iter().any(|start| name.starts_with(start));
    (is_tls13 || name.starts_with("TLS_ECDHE_")) && ["_GCM_", "_POLY1305_"].iter().any(|aead| name.contains(aead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_compared_with_the_policy() {
        let done = |result: Value| json!({ "status": "COMPLETED", "result": result });
        let suites = |names: &[&str]| {
            let names: Vec<Value> = names.iter().map(|name| json!({ "cipher_suite": { "name": name } })).collect();
            done(json!({ "accepted_cipher_suites": names }))
        };
        let mut result = json!({
            "ssl_2_0_cipher_suites": suites(&[]), "ssl_3_0_cipher_suites": suites(&[]),
            "tls_1_0_cipher_suites": suites(&[]), "tls_1_1_cipher_suites": suites(&[]),
            "tls_1_2_cipher_suites": suites(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]),
            "tls_1_3_cipher_suites": suites(&["TLS_CHACHA20_POLY1305_SHA256"]),
            "heartbleed": done(json!({ "is_vulnerable_to_heartbleed": false })),
            "openssl_ccs_injection": done(json!({ "is_vulnerable_to_ccs_injection": false })),
            "robot": done(json!({ "robot_result": "NOT_VULNERABLE_RSA_NOT_SUPPORTED" })),
            "session_renegotiation": done(json!({ "is_vulnerable_to_client_renegotiation_dos": false })),
            "tls_compression": done(json!({ "supports_compression": false })),
            "tls_1_3_early_data": done(json!({ "supports_early_data": false })),
        });
        let judge = |result: &Value| findings(&json!({ "server_scan_results": [{ "scan_result": result }] }));
        assert_eq!(judge(&result), [""; 0]);
        result["tls_1_1_cipher_suites"] = suites(&["TLS_RSA_WITH_AES_128_CBC_SHA"]);
        result["tls_1_2_cipher_suites"] = suites(&["TLS_RSA_WITH_AES_128_GCM_SHA256"]);
        result["robot"]["status"] = json!("ERROR");
        let expected = ["tls_1_1 is accepted", "the suite TLS_RSA_WITH_AES_128_GCM_SHA256", "robot: \"ERROR\""];
        assert_eq!(judge(&result), expected);
    }
}
