//! Parsers of Python, in a program of their own that gets our messages and what we read in them.

use crate::{json, messages};
use std::io::Write;
use std::process::{Command, Stdio};

pub fn all() {
    let python = std::env::var("FEED_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/decoders.py");
    let child = Command::new(&python).arg(program).stdin(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return println!("no parsers of Python: {python}: {error}"),
    };
    let mut input = child.stdin.take().unwrap();
    send(&mut input, "trade", &messages::trades(), |text| serde_json::to_string(&json::our_trade(text).unwrap()));
    send(&mut input, "depth", &messages::depths(), |text| serde_json::to_string(&json::our_depth(text).unwrap()));
    drop(input);
    assert!(child.wait().unwrap().success(), "{program} has failed");
}

fn send(input: &mut impl Write, kind: &str, messages: &[Vec<u8>], read: impl Fn(&[u8]) -> serde_json::Result<String>) {
    writeln!(input, "{kind} {}", messages.len()).unwrap();
    for message in messages {
        input.write_all(message).unwrap();
        writeln!(input, "\n{}", read(message).unwrap()).unwrap();
    }
}
