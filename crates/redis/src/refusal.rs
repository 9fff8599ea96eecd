//! Answers of Redis that no wait changes: only an operator does.

use redis::{ErrorKind, RedisError};

/// The oldest version with all commands that are used.
pub(crate) const OLDEST: (u32, u32) = (6, 2);

/// The things that Redis can refuse.
pub(crate) const CONNECTION: &str = "connection";
pub(crate) const MESSAGES: &str = "messages";

/// Why Redis does not do it, if a wait does not help.
pub(crate) fn of_error(error: &RedisError) -> Option<String> {
    let code = error.code().unwrap_or_default();
    let remedy = match (error.kind(), code) {
        (ErrorKind::AuthenticationFailed, _) | (_, "WRONGPASS" | "NOAUTH") => {
            "the server does not accept this user and password: correct them, and start again"
        }
        (_, "NOPERM") => {
            "grant the user ~PREFIX:* &PREFIX:* +@read +@write +@scripting +@pubsub +@connection +info +config|get +cluster"
        }
        (_, "OOM") => "raise maxmemory at the server, or keep less (taut serve: --broker-entries, --broker-age)",
        (_, "MISCONF") => "the server cannot write its snapshot: look at its log and disk",
        (_, "READONLY") => "the server is a replica: name the master, or all servers with commas between them",
        (ErrorKind::RESP3NotSupported, _) => return Some(too_old("the server is older than 6.0")),
        (ErrorKind::InvalidClientConfig, _) => "correct the URL of the server",
        _ => return None,
    };
    Some(format!("{}: {remedy}", shown(error)))
}

/// Why a version is not used.
pub(crate) fn too_old(what: &str) -> String {
    let (major, minor) = OLDEST;
    format!("{what}: Redis {major}.{minor} or newer is needed")
}

/// The server's words, without the digest of our script and its line.
fn shown(error: &RedisError) -> String {
    let text = error.to_string();
    text.split(" script: ").next().unwrap_or_default().trim().to_owned()
}
