//! Tests our client against the servers in `tests/interop`, whose README describes them.
//!
//! Usage: `interop_client URL CA_FILE CASE [CERT_FILE KEY_FILE]`, with the case `all` or `refused`. It prints one line per
//! check, and exits with 0 if all pass.

use std::time::Duration;
use std::{env, fs, process};

use tautline::{
    Cause, Certificate, Client, ClientConfig, CloseCode, Closed, Config, Conn, ConnectError, DeflateConfig, Error,
    Handler, Incoming, Kind, Message, Opening, ProtocolVersion, Roots, Socket, Target, Versions,
};

const SIZES: [usize; 9] = [0, 1, 125, 126, 127, 4096, 65_535, 65_536, 1 << 20];
const PATIENCE: Duration = Duration::from_secs(20);

type Checked = Result<(), Box<dyn std::error::Error>>;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        [url, ca, "all"] => setting(url, ca, None).and_then(|setting| all(&setting)),
        [url, ca, "all", chain, key] => setting(url, ca, Some((chain, key))).and_then(|setting| all(&setting)),
        [url, ca, "refused"] => setting(url, ca, None).and_then(|setting| refused(&setting)),
        _ => Err("interop_client URL CA_FILE all|refused [CERT_FILE KEY_FILE]".into()),
    };
    if let Err(error) = done {
        println!("FAIL {error:#}");
        process::exit(1);
    }
}

/// The server's address, and the TLS configuration for it.
struct Setting {
    url: String,
    tls: ClientConfig,
}

impl Setting {
    fn connect(&self, path: &str, change: impl FnOnce(&mut Target)) -> Result<Socket, Error> {
        let mut target = Target::new(&format!("{}{path}", self.url))?;
        change(&mut target);
        Socket::connect(target, self.tls.clone(), config())
    }
}

fn setting(url: &str, ca: &str, own: Option<(&str, &str)>) -> Result<Setting, Box<dyn std::error::Error>> {
    let mut tls = ClientConfig::default().with_roots(Roots::Pem(fs::read(ca)?));
    if let Some((chain, key)) = own {
        tls.certificate = Some(Certificate::new(fs::read(chain)?, fs::read(key)?));
    }
    Ok(Setting { url: url.to_owned(), tls })
}

/// A configuration that accepts the longest of [`SIZES`].
fn config() -> Config {
    let mut config = Config::untrusted_internet();
    config.limits.max_message = 4 << 20;
    config
}

fn all(setting: &Setting) -> Checked {
    for deflate in [false, true] {
        let offer = |target: &mut Target| target.deflate = deflate.then(DeflateConfig::default);
        let name = if deflate { "compressed " } else { "" };
        echo(&format!("{name}echo"), setting.connect("/", offer)?)?;
        echo(&format!("{name}echo in fragments"), setting.connect("/fragments", offer)?)?;
        facts(setting, deflate)?;
    }
    let mut pinged = setting.connect("/ping", |_| {})?;
    pinged.text("are you there")?;
    expect("pong to the server's ping", receive(&mut pinged)?.data() == b"pong are you there")?;
    closed_by_the_server(setting)?;
    we_fragment_ping_and_close(setting)?;
    tls_1_2(setting)
}

fn echo(name: &str, mut socket: Socket) -> Checked {
    for text in ["hello", "", "Grüße, 世界 🦀"] {
        socket.text(text)?;
        expect(&format!("{name} of {text:?}"), receive(&mut socket)? == Incoming::Text(text.to_owned()))?;
    }
    for size in SIZES {
        let text = "tautline ".repeat(size / 9);
        socket.text(&text)?;
        expect(&format!("{name} of text, {size} B"), receive(&mut socket)? == Incoming::Text(text))?;
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        socket.binary(&bytes)?;
        expect(&format!("{name} of binary, {size} B"), receive(&mut socket)? == Incoming::Binary(bytes))?;
    }
    for number in 0..100 {
        socket.text(&format!("{number} {}", "x".repeat(1000)))?;
    }
    for number in 0..100 {
        let same = receive(&mut socket)? == Incoming::Text(format!("{number} {}", "x".repeat(1000)));
        if !same || number == 99 {
            expect(&format!("{name} of 100 pipelined"), same)?;
        }
    }
    socket.close(CloseCode::NORMAL, "done")?;
    expect(&format!("{name}: close is answered"), true)
}

fn facts(setting: &Setting, deflate: bool) -> Checked {
    let mut socket = setting.connect("/facts", |target| {
        target.deflate = deflate.then(DeflateConfig::default);
        target.subprotocols = vec!["unknown.test".to_owned(), "echo.test".to_owned()];
    })?;
    let said = receive(&mut socket)?;
    let facts: String = String::from_utf8_lossy(said.data()).split_whitespace().collect();
    expect(&format!("compression is {deflate} at the server"), facts.contains(&format!("\"deflate\":{deflate}")))?;
    expect("subprotocol", facts.contains("\"subprotocol\":\"echo.test\""))?;
    let named = !facts.contains("\"client\":\"\"");
    expect("the server knows our certificate if we have one", named == setting.tls.certificate.is_some())
}

fn closed_by_the_server(setting: &Setting) -> Checked {
    let mut socket = setting.connect("/close", |_| {})?;
    socket.text("4002 see you")?;
    match socket.receive_timeout(PATIENCE) {
        Err(Error::Closed(Closed { code, reason, cause: Cause::Peer, .. })) => {
            expect("the server's close code and reason", code.get() == 4002 && reason == "see you")
        }
        other => Err(format!("the server's close code and reason: {other:?}").into()),
    }
}

/// Sends a message in fragments with a ping between them, and closes once the echo and the pong have arrived.
#[derive(Default)]
struct Fragments {
    echoed: bool,
    ponged: bool,
    closed: Option<Closed>,
}

impl Fragments {
    const PARTS: [&'static str; 4] = ["one ", "", "two ", "thrée"];

    fn close_when_done(&self, conn: &mut Conn<'_, ()>) {
        if self.echoed && self.ponged {
            conn.close(CloseCode::new(4001), "bye");
        }
    }
}

impl Handler for Fragments {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _: &Opening<'_>) {
        for (number, part) in Self::PARTS.iter().enumerate() {
            conn.fragment(Kind::Text, part.as_bytes(), number + 1 == Self::PARTS.len());
            if number == 1 && conn.ping(b"between fragments").is_err() {
                conn.close(CloseCode::PROTOCOL_ERROR, "cannot ping");
            }
        }
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        self.echoed = message.text() == Some(&Self::PARTS.concat());
        self.close_when_done(conn);
    }

    fn on_pong(&mut self, conn: &mut Conn<'_, ()>, payload: &[u8]) {
        self.ponged |= payload == b"between fragments";
        self.close_when_done(conn);
    }

    fn on_close(&mut self, _: &mut Conn<'_, ()>, closed: &Closed) {
        self.closed = Some(closed.clone());
    }
}

fn we_fragment_ping_and_close(setting: &Setting) -> Checked {
    let target = Target::new(&format!("{}/", setting.url))?;
    let client = Client::new(setting.tls.clone()).target(target).config(config());
    let seen = client.run(Fragments::default())?;
    expect("echo of our fragments", seen.echoed)?;
    expect("pong to our ping between fragments", seen.ponged)?;
    let answered = seen.closed.is_some_and(|closed| closed.code.get() == 4001 && matches!(closed.cause, Cause::Local));
    expect("our close is answered with its code", answered)
}

fn tls_1_2(setting: &Setting) -> Checked {
    let tls = setting.tls.clone().with_versions(Versions::Tls12);
    let old = Setting { url: setting.url.clone(), tls };
    let mut socket = old.connect("/", |_| {})?;
    socket.text("hello")?;
    expect(
        "echo over TLS 1.2",
        receive(&mut socket)?.data() == b"hello" && socket.tls().version == Some(ProtocolVersion::Tls12),
    )?;
    let mut socket = setting.connect("/", |_| {})?;
    expect("TLS 1.3 by default", socket.tls().version == Some(ProtocolVersion::Tls13))
}

/// Expects that the server rejects the client. With TLS 1.3 that happens after the client's own handshake.
fn refused(setting: &Setting) -> Checked {
    let ended = setting.connect("/", |_| {}).and_then(|mut socket| socket.receive_timeout(PATIENCE));
    match ended {
        Ok(_) => Err("not refused".into()),
        Err(error @ Error::Connect(ConnectError::Io { .. })) => Err(format!("no server: {error:#}").into()),
        Err(error) => expect(&format!("refused: {error:#}"), true),
    }
}

fn receive(socket: &mut Socket) -> Result<Incoming, Box<dyn std::error::Error>> {
    let message = socket.receive_timeout(PATIENCE)?;
    message.ok_or_else(|| "no message came in time".into())
}

fn expect(name: &str, holds: bool) -> Checked {
    if !holds {
        return Err(name.into());
    }
    println!("ok   {name}");
    Ok(())
}
