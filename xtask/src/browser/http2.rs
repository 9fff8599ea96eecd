//! A page over HTTP/2 that opens 20 WebSockets: one connection, seen by the server, and in the browser's own log of its network.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use super::checks::check;
use super::chromium::Browser;
use super::live::wait_for;
use crate::outcome::{Failure, Outcome};
use crate::stage::Context;
use crate::taut::{self, Scheme};

const SOCKETS: usize = 20;

/// Opens the sockets, and sends a text on each.
const PAGE: &str = "<!doctype html><html lang=en><link rel=icon href='data:,'><title>sockets</title><script>
    window.echoes = 0;
    window.sockets = Array.from({ length: 20 }, (_, number) => {
        const socket = new WebSocket(`wss://${location.host}/`);
        socket.onopen = () => socket.send(`hello ${number}`);
        socket.onmessage = ({ data }) => { window.echoes += data === `hello ${number}`; };
        return socket;
    });
</script>";

/// Starts a browser of its own, whose log is complete once it has ended.
pub(super) fn test(context: &Context, program: &str, folder: &Path) -> Outcome {
    let certificates = taut::certificates(context)?;
    let (files, own) = (folder.join("http2-files"), folder.join("http2"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&own)?;
    fs::write(files.join("index.html"), PAGE)?;
    let admin = format!("127.0.0.1:{}", taut::free_port()?);
    let options = ["--http2", "--files", &files.to_string_lossy(), "--admin", &admin].map(str::to_owned);
    let server = taut::serve("browser-http2", Scheme::Wss, &certificates, &options.each_ref().map(String::as_str))?;
    let log = own.join("net-log.json");
    let mut browser = Browser::start_with(program, &own, &[format!("--log-net-log={}", log.display())])?;
    browser.trust_all()?;
    browser.open(&format!("https://127.0.0.1:{}/", server.port))?;
    wait_for(&mut browser, &format!("window.echoes === {SOCKETS}"), "the echoes of its sockets")?;
    let protocols = browser.value("performance.getEntriesByType('navigation')[0].nextHopProtocol")?;
    check(protocols == json!("h2"), || format!("the page came over {protocols}"))?;
    seen_by_the_server(&admin)?;
    browser.end()?;
    seen_by_the_browser(&log, server.port)
}

/// One connection carries all sockets, and none came by another.
fn seen_by_the_server(admin: &str) -> Outcome {
    let mut stream = TcpStream::connect(admin)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    for (name, expected) in [("http2_connections", 1), ("websockets_opened", SOCKETS)] {
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("tautline_{name}_total ")));
        check(value == Some(&expected.to_string()), || format!("{name} is {value:?} instead of {expected}"))?;
    }
    Ok(())
}

/// The log has one session of HTTP/2 with the server, on which 20 requests ask for a WebSocket, and no upgrade of HTTP/1.1.
fn seen_by_the_browser(log: &Path, port: u16) -> Outcome {
    let log: Value = serde_json::from_str(&fs::read_to_string(log)?)
        .map_err(|error| Failure::Failed(format!("the browser's log is no JSON: {error}")))?;
    let types = &log["constants"]["logEventTypes"];
    let events = log["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    let named = |name: &'static str| {
        let kind = &types[name];
        events.iter().filter(move |event| !kind.is_null() && event["type"] == *kind)
    };
    let host = format!("127.0.0.1:{port}");
    let is_ours = |event: &&Value| event["params"]["host"] == host;
    let sessions: BTreeSet<u64> =
        named("HTTP2_SESSION").filter(is_ours).filter_map(|event| event["source"]["id"].as_u64()).collect();
    check(sessions.len() == 1, || format!("{} sessions of HTTP/2 with {host}", sessions.len()))?;
    let asks = named("HTTP2_SESSION_SEND_HEADERS").filter(|event| {
        let fields = event["params"]["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
        event["source"]["id"].as_u64().is_some_and(|id| sessions.contains(&id))
            && fields.iter().any(|field| field == ":method: CONNECT")
            && fields.iter().any(|field| field == ":protocol: websocket")
    });
    let asks = asks.count();
    check(asks == SOCKETS, || format!("{asks} WebSockets on the session instead of {SOCKETS}"))
}
