//! A server with rules, and steps of its clients.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tautline::http::{HeaderName, HeaderValue};
use tautline::{Bridge, ClientConfig, CloseCode, Incoming, Server, ServerHandle, Socket};
use tautline_hub::{Config, Hub, Log, MemoryLog, Rules};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Keys of the HTTP interface.
pub(crate) const API_KEY: &str = "fedcba9876543210fedcba9876543210";
pub(crate) const OTHER_KEY: &str = "00000000000000000000000000000000";
/// Signs requests to applications.
pub(crate) const HOOK_SECRET: &str = "hooks-0123456789abcdef0123456789";
pub(crate) const RULES: &str = "
[[namespace]]
topics = \"news:*\"
anyone = [\"subscribe\"]

[[namespace]]
topics = \"log:*\"
users = [\"subscribe\", \"publish\"]
";

/// A server with rules.
pub(crate) struct Bench {
    pub(crate) hub: Hub,
    pub(crate) server: ServerHandle,
    pub(crate) folder: PathBuf,
}

impl Bench {
    pub(crate) fn new(tokens: &str, rest: &str) -> Self {
        Self::on(None, tokens, rest)
    }

    /// A host that shares topics with others.
    pub(crate) fn on(bridge: Option<Bridge>, tokens: &str, rest: &str) -> Self {
        Self::with(Config::default(), bridge, tokens, rest)
    }

    pub(crate) fn with(config: Config, bridge: Option<Bridge>, tokens: &str, rest: &str) -> Self {
        Self::with_log(config, (Arc::new(MemoryLog::default()), bridge), tokens, rest)
    }

    pub(crate) fn with_log(
        config: Config,
        (log, bridge): (Arc<dyn Log>, Option<Bridge>),
        tokens: &str,
        rest: &str,
    ) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("hub-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("secret"), SECRET).unwrap();
        std::fs::write(folder.join("api.key"), API_KEY).unwrap();
        std::fs::write(folder.join("other.key"), OTHER_KEY).unwrap();
        std::fs::write(folder.join("hook.secret"), HOOK_SECRET).unwrap();
        let hub = Hub::with_log(config, log, bridge.clone());
        let hub = hub.with_rules(rules(&folder, tokens, rest));
        let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).shards(2).beside_others(true);
        let server = bridge.into_iter().fold(server, Server::bridge);
        let server = server.start(hub.handlers()).unwrap();
        Self { hub, server, folder }
    }

    pub(crate) fn reload(&self, tokens: &str, rest: &str) {
        self.hub.set_rules(rules(&self.folder, tokens, rest));
    }

    pub(crate) fn try_connect(&self, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, String> {
        let mut target = tautline::Target::new(&format!("ws://{}{path}", self.server.addresses()[0])).unwrap();
        for (name, value) in headers {
            target.headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let socket = Socket::connect(target, ClientConfig::default(), tautline::Config::default());
        socket.map_err(|error| format!("{error:#}"))
    }

    pub(crate) fn connect(&self, token: &str) -> Socket {
        self.try_connect("/", &[("authorization", &format!("Bearer {token}"))]).unwrap()
    }

    pub(crate) fn end(self) {
        // Clients that do not read any more do not answer the close.
        self.server.drain(CloseCode::SERVICE_RESTART, "", Duration::from_millis(100));
        self.server.join().unwrap();
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn rules(folder: &Path, tokens: &str, rest: &str) -> Rules {
    let file = folder.join("hub.toml");
    std::fs::write(&file, format!("[tokens]\nsecrets = [\"secret\"]\n{tokens}\n{rest}")).unwrap();
    Rules::load(&file).unwrap()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

pub(crate) fn token(user: &str, lives: f64, topics: &Value) -> String {
    signed(&json!({ "sub": user, "exp": now() + lives, "topics": topics }))
}

/// A token of a user that has a name of its own.
pub(crate) fn named_token(user: &str, id: &str) -> String {
    signed(&json!({ "sub": user, "exp": now() + 600.0, "jti": id }))
}

fn signed(claims: &Value) -> String {
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes()).unwrap()).unwrap()
}

pub(crate) fn next(socket: &mut Socket) -> String {
    match socket.receive() {
        Ok(Incoming::Text(text)) => text,
        Ok(other) => format!("{other:?}"),
        Err(error) => format!("{error:#}"),
    }
}

pub(crate) fn ask(socket: &mut Socket, request: &Value) -> String {
    socket.text(&request.to_string()).unwrap();
    next(socket)
}

pub(crate) fn subscribe(socket: &mut Socket, topic: &str) -> String {
    ask(socket, &json!({ "type": "subscribe", "topic": topic }))
}

pub(crate) fn send(socket: &mut Socket, topic: &str) -> String {
    ask(socket, &json!({ "type": "publish", "topic": topic, "data": 1, "id": "i" }))
}

/// Waits for an answer with this part.
pub(crate) fn until(socket: &mut Socket, part: &str) -> String {
    loop {
        let text = next(socket);
        if text.contains(part) {
            return text;
        }
        assert!(text.starts_with('{'), "{text} instead of {part}");
    }
}
