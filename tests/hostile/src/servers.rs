//! Hostile servers against the client `taut connect`.

use crate::outcome::Result;
use crate::report::Row;
use crate::server::{Material, memory_of};
use crate::wire::{BINARY, CLOSE, CONTINUES, ENDS, PING, RSV1, TEXT, TEXT_BEGINS, deflated, header, masked, unmasked};
use aws_lc_rs::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};
use tautline::Certificate;

/// Most resident memory of a client under attack.
const MOST_MEMORY: u64 = 96 << 20;
/// Above every deadline of the client.
const PATIENCE: Duration = Duration::from_secs(40);

/// A hostile server.
struct Hostile {
    name: &'static str,
    begin: Begin,
    /// The bytes that it sends.
    sends: Vec<u8>,
    /// How many times it sends them.
    times: usize,
    /// Its act behind them.
    then: Then,
    /// A word of the client's message about it. The client must end with it, and not by success.
    expect: &'static str,
}

/// The state in which the bytes are sent.
#[derive(Clone, Copy)]
enum Begin {
    /// Connected by TCP, with `ws` or `wss` in the client's URL.
    Tcp(&'static str),
    /// Behind the client's upgrade request.
    Request,
    /// Behind a good answer, with this value of Sec-WebSocket-Extensions.
    Open(&'static str),
    /// A TLS handshake with a certificate: 0 expired, 1 of another authority, 2 for another name.
    Certificate(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Hangs up.
    Close,
    /// Says nothing more, and reads nothing.
    Stall,
}

fn all() -> Vec<Hostile> {
    let of = |name, begin, sends: Vec<u8>, expect| Hostile { name, begin, sends, times: 1, then: Then::Stall, expect };
    let answer = |name, head: &str, expect| of(name, Begin::Request, head.as_bytes().to_vec(), expect);
    let open = |name, sends: Vec<u8>, expect| of(name, Begin::Open(""), sends, expect);
    let tls = |name, sends: &[u8]| of(name, Begin::Tcp("wss"), sends.to_vec(), "TLS");
    let upgraded = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    let deflate = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    vec![
        Hostile { then: Then::Close, ..of("a hang-up at once", Begin::Tcp("ws"), Vec::new(), "") },
        of("silence", Begin::Tcp("ws"), Vec::new(), "deadline"),
        of("random bytes without a line end", Begin::Request, vec![0x9a; 2_000], "deadline"),
        of("random bytes", Begin::Request, [&[0x9a; 2_000][..], b"\r\n\r\n"].concat(), "HTTP"),
        answer("200 instead of 101", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200"),
        answer("a redirect", "HTTP/1.1 302 Found\r\nLocation: ws://127.0.0.1:1/\r\n\r\n", "redirects"),
        answer("no Sec-WebSocket-Accept", &format!("{upgraded}\r\n"), "Accept"),
        answer(
            "another's Sec-WebSocket-Accept",
            &format!("{upgraded}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"),
            "Accept",
        ),
        Hostile { times: 20_000, ..answer("an endless head", &format!("X-A: {}\r\n", "b".repeat(1_000)), "") },
        of("half a head", Begin::Request, b"HTTP/1.1 101 Swit".to_vec(), "deadline"),
        of("an extension that was not offered", Begin::Open("x-unknown"), Vec::new(), "extension"),
        of("compression that was not offered", Begin::Open(deflate), Vec::new(), "extension"),
        open("a masked frame", masked(TEXT, b"masked"), "mask"),
        open("a reserved opcode", unmasked(0x83, b""), "opcode"),
        open("a reserved bit", unmasked(TEXT | 0x20, b""), "reserved"),
        open("RSV1 without the extension", unmasked(TEXT | RSV1, &deflated(b"x")), "reserved"),
        open("2^62 bytes", [&[BINARY, 127][..], &(1_u64 << 62).to_be_bytes()].concat(), "limit"),
        open("2^64 - 1 bytes", [&[BINARY, 127][..], &[0xff; 8]].concat(), ""),
        open("a message above the limit", [header(BINARY, 0, 2 << 20), vec![0; 2 << 20]].concat(), "limit"),
        open("a continuation of nothing", unmasked(ENDS, b""), "continu"),
        open("a fragmented ping", unmasked(PING & 0x7f, b""), "control"),
        open("text that is no UTF-8", unmasked(TEXT, b"\xed\xa0\x80"), "UTF-8"),
        open("an invalid close code", unmasked(CLOSE, &1005_u16.to_be_bytes()), "close code"),
        open("terminal escapes in a close reason", unmasked(CLOSE, b"\x0f\xa0\x1b]0;owned\x07"), "4000"),
        Hostile { times: 2_000, ..open("fragments without an end", unmasked(CONTINUES, &[0; 16_000]), "continu") },
        Hostile { times: 300_000, ..open("pings whose answers nobody reads", unmasked(PING, &[0; 125]), "") },
        Hostile { then: Then::Close, ..open("a hang-up in a message", unmasked(TEXT_BEGINS, b"x")[..2].to_vec(), "") },
        of(
            "a bomb of 64 MiB",
            Begin::Open("bomb"),
            unmasked(BINARY | RSV1, &deflated(&vec![0; 64 << 20])),
            "peer sent a",
        ),
        tls("random bytes for a ServerHello", &[0x9a; 500]),
        tls("plain HTTP for a ServerHello", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        tls("a fatal alert for a ServerHello", &[21, 3, 3, 0, 2, 2, 40]),
        tls("a record of 65,535 bytes", &[22, 3, 3, 0xff, 0xff]),
        tls("data for a ServerHello", &[23, 3, 3, 0, 1, 0]),
        tls("a malformed ServerHello", &[22, 3, 3, 0, 6, 2, 0, 0, 2, 3, 3]),
        of("silence for a ServerHello", Begin::Tcp("wss"), Vec::new(), "deadline"),
        of("an expired certificate", Begin::Certificate(0), Vec::new(), "certificate"),
        of("a certificate of another authority", Begin::Certificate(1), Vec::new(), "certificate"),
        of("a certificate for another name", Begin::Certificate(2), Vec::new(), "certificate"),
    ]
}

/// Lets every hostile server meet a client, all at the same time.
pub(crate) fn run(taut: &Path, material: &Material, wanted: impl Fn(&str) -> bool) -> Vec<Row> {
    thread::scope(|scope| {
        let chosen = (1..).zip(all()).filter(|(_, hostile)| wanted(hostile.name));
        let running: Vec<_> =
            chosen.map(|(number, hostile)| scope.spawn(move || meet(taut, material, number, &hostile))).collect();
        running.into_iter().filter_map(|one| one.join().ok()).collect()
    })
}

fn meet(taut: &Path, material: &Material, number: u32, hostile: &Hostile) -> Row {
    let begun = Instant::now();
    let mut row = Row {
        target: "client".to_owned(),
        number: format!("11.{number}"),
        group: "hostile servers",
        name: hostile.name.to_owned(),
        expected: format!("an error with {:?}", hostile.expect),
        outcome: String::new(),
        passed: false,
        seconds: 0.0,
        growth: 0,
        p99: None,
    };
    match client(taut, material, number, hostile) {
        Ok((code, told, memory)) => {
            let last = told.lines().rfind(|line| !line.is_empty()).unwrap_or_default();
            let is_calm = !told.contains("panicked") && !told.contains('\x1b') && memory < MOST_MEMORY;
            row.outcome = format!("exit {code:?}: {}", last.get(..90).unwrap_or(last));
            row.passed = matches!(code, Some(1..=9)) && told.contains(hostile.expect) && is_calm;
            row.growth = memory;
        }
        Err(error) => row.outcome = error.to_string(),
    }
    row.seconds = begun.elapsed().as_secs_f64();
    row
}

/// The end of a client that has met a hostile server: its exit code, what it wrote to standard error, and its memory.
fn client(taut: &Path, material: &Material, number: u32, hostile: &Hostile) -> Result<(Option<i32>, String, u64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let scheme = match hostile.begin {
        Begin::Tcp(scheme) => scheme,
        Begin::Certificate(_) => "wss",
        _ => "ws",
    };
    let log = material.file(&format!("client-{number}.log"));
    let mut command = Command::new(taut);
    command.args(["connect", "--wait", "30", "--max-message", "1MiB"]);
    if scheme == "wss" {
        command.arg("--ca").arg(material.file("ca.pem"));
    }
    if matches!(hostile.begin, Begin::Open("bomb")) {
        command.arg("--deflate");
    }
    command.arg(format!("{scheme}://127.0.0.1:{}/", listener.local_addr()?.port()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&log)?);
    let mut child = command.spawn()?;
    let pid = child.id();
    thread::scope(|scope| {
        scope.spawn(|| {
            // An error is the client's hang-up.
            let _ = serve(&listener, material, hostile, pid);
        });
        let (begun, mut memory) = (Instant::now(), 0);
        let status = loop {
            memory = memory.max(memory_of(pid).1);
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                // Frees the server that waits for a client.
                let _ = TcpStream::connect(listener.local_addr()?);
                return Err("the client did not end".into());
            }
            thread::sleep(Duration::from_millis(5));
        };
        let _ = TcpStream::connect(listener.local_addr()?);
        Ok((status.code(), fs::read_to_string(&log)?, memory))
    })
}

/// Serves one client.
fn serve(listener: &TcpListener, material: &Material, hostile: &Hostile, client: u32) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    match hostile.begin {
        Begin::Tcp(_) => {}
        Begin::Request => drop(request(&mut stream)?),
        Begin::Open(extensions) => {
            let key = request(&mut stream)?;
            stream.write_all(upgrade(&key, extensions).as_bytes())?;
        }
        Begin::Certificate(which) => {
            let mut stream = StreamOwned::new(ServerConnection::new(certified(&material.servers[which])?)?, stream);
            let _ = stream.read(&mut [0; 1024])?;
            return Ok(());
        }
    }
    for _ in 0..hostile.times {
        stream.write_all(&hostile.sends)?;
    }
    while hostile.then == Then::Stall && Path::new(&format!("/proc/{client}/fd/0")).exists() {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Reads a request, and returns its key.
fn request(stream: &mut TcpStream) -> Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
    Ok(key.unwrap_or_default().to_owned())
}

/// A good answer to an upgrade request.
fn upgrade(key: &str, extensions: &str) -> String {
    let value = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    let extensions = match extensions {
        "" => String::new(),
        "bomb" => format!("Sec-WebSocket-Extensions: {OFFERED}\r\n"),
        other => format!("Sec-WebSocket-Extensions: {other}\r\n"),
    };
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\n{extensions}\r\n",
        base64(value.as_ref())
    )
}

/// RFC 6455, section 1.3.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The parameters that every client of ours can take.
const OFFERED: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = char::from(LETTERS[bits >> (18 - 6 * place) & 63]);
            out.push(if place <= three.len() { letter } else { '=' });
        }
    }
    out
}

fn certified(certificate: &Certificate) -> Result<Arc<ServerConfig>> {
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate.chain).collect();
    let key = PrivateKeyDer::from_pem_slice(&certificate.key)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_no_client_auth().with_single_cert(chain?, key)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_like_the_example_of_rfc_6455() {
        assert!(upgrade("dGhlIHNhbXBsZSBub25jZQ==", "").contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(["", "f", "fo", "foo"].map(|text| base64(text.as_bytes())), ["", "Zg==", "Zm8=", "Zm9v"]);
    }
}
