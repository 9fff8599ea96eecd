use super::client::{Client, Fetch};
use super::driver::Driver;
use super::net::{ClientEnd, Net};
use super::world::{Turn, World};
use crate::{CloseCode, Config, Handler, OnPanic, Outgoing, Shard, ShardHandle, Target};
use http::header::{CONTENT_LENGTH, HOST};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tautline_engine::connection::Connection;
use tautline_tls::{Engine as _, plain};

/// A handler with its loop. See the [module](crate::testing) for an example.
pub struct App<H: Handler> {
    shard: Rc<RefCell<Shard<plain::Engine, H>>>,
    world: World,
}

impl<H: Handler> Turn for Shard<plain::Engine, H> {
    #[expect(clippy::expect_used, reason = "the driver's turn has no error")]
    fn turn(&mut self) {
        self.turn(None).expect("a turn in memory");
    }
}

impl<H: Handler> App<H> {
    /// A loop with this handler and the default configuration. A panic of the handler ends the test.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(handler: H) -> io::Result<Self> {
        let mut config = Config::default();
        config.on_panic = OnPanic::EndLoop;
        Self::with_config(config, handler)
    }

    /// A loop with this handler and configuration.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn with_config(config: Config, handler: H) -> io::Result<Self> {
        let net = Rc::new(RefCell::new(Net::new()?));
        let clock = net.clone();
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, Driver(net.clone()), handler)?;
        // The peers are part of the test, so it does not matter that a seed makes masks and nonces known.
        shard.danger_simulate(move || clock.borrow().now, [7; 32]);
        let shard = Rc::new(RefCell::new(shard));
        let app = Self { world: World { net, turn: shard.clone() }, shard };
        app.run();
        Ok(app)
    }

    /// Opens a WebSocket at this path, such as `/room?user=ada`.
    ///
    /// # Panics
    /// If `path` is no path.
    #[expect(clippy::expect_used, reason = "it ends the test, which is at fault")]
    pub fn connect(&self, path: &str) -> Client {
        self.connect_to(Target::new(&format!("ws://localhost{path}")).expect("a path that begins with '/'"))
    }

    /// Opens a WebSocket with headers, subprotocols or compression.
    ///
    /// # Panics
    /// If the target has a proxy or headers that only the handshake may set.
    #[expect(clippy::expect_used, reason = "it ends the test, which is at fault")]
    pub fn connect_to(&self, target: Target) -> Client {
        let mut config = Config::default();
        // The clients of a test have no clock.
        (config.deadlines.ping, config.deadlines.idle) = (None, None);
        let mut net = self.world.net.borrow_mut();
        let now = net.begin + net.now;
        let session = plain::Engine.connect(target.host()).expect("a session without TLS");
        let connection = Connection::client(session, Arc::new(target), Arc::new(config), &mut net.context, now);
        let connection = Box::new(connection.expect("a target without a proxy"));
        let number = net.add(ClientEnd::WebSocket { connection, events: VecDeque::new(), is_over: false });
        drop(net);
        self.run();
        Client::new(self.world.clone(), number)
    }

    /// Sends a plain HTTP request, and waits for the response: in real time, if another thread has it.
    ///
    /// # Panics
    /// If no response comes within a minute.
    pub fn fetch(&self, request: &http::Request<Vec<u8>>) -> http::Response<Vec<u8>> {
        self.begin(request).wait()
    }

    /// Sends a plain HTTP request whose response comes later.
    pub fn begin(&self, request: &http::Request<Vec<u8>>) -> Fetch {
        let head_only = request.method() == http::Method::HEAD;
        let fetch = self.begin_raw(&written(request));
        if let ClientEnd::Http { head_only: mark, .. } = &mut self.world.net.borrow_mut().pipes[fetch.number()].end {
            *mark = head_only;
        }
        fetch
    }

    /// Sends these bytes on a new connection, for requests that no client would send.
    pub fn begin_raw(&self, bytes: &[u8]) -> Fetch {
        let number = {
            let mut net = self.world.net.borrow_mut();
            let number = net.add(ClientEnd::Http { received: Vec::new(), head_only: false });
            net.pipes[number].inbound.extend(bytes);
            number
        };
        self.run();
        Fetch::new(self.world.clone(), number)
    }

    /// Runs the loop until nothing is left to do, for example after other threads gave it commands.
    pub fn run(&self) {
        self.world.run();
    }

    /// Lets time pass: timers and deadlines are met in their order.
    pub fn advance(&self, by: Duration) {
        let end = self.now() + by;
        loop {
            self.run();
            let mut net = self.world.net.borrow_mut();
            let next = net.due.filter(|due| *due <= end);
            net.now = next.unwrap_or(end);
            if next.is_none() {
                break;
            }
        }
        self.run();
    }

    /// The time that has passed since the begin.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.world.net.borrow().now
    }

    /// Calls `look` with the handler.
    pub fn with_handler<R>(&self, look: impl FnOnce(&mut H) -> R) -> R {
        look(self.shard.borrow_mut().handler())
    }

    /// The handle to the loop, as other threads have it.
    #[must_use]
    pub fn handle(&self) -> ShardHandle {
        self.shard.borrow().handle()
    }

    /// Publishes a message from outside, as [`ServerHandle::publish`](crate::ServerHandle::publish) does.
    pub fn publish(&self, topic: &str, message: Outgoing<'_>) {
        // The loop is there, and its queue is empty.
        let _ = self.handle().publish(topic, message);
        self.run();
    }

    /// Begins a drain, as [`ServerHandle::drain`](crate::ServerHandle::drain) does.
    pub fn drain(&self, code: CloseCode, reason: &str, deadline: Duration) {
        self.shard.borrow_mut().drain(code, reason, deadline);
        self.run();
    }
}

impl<H: Handler> std::fmt::Debug for App<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("now", &self.now()).finish_non_exhaustive()
    }
}

/// The bytes of a request, with the headers that every client sends.
fn written(request: &http::Request<Vec<u8>>) -> Vec<u8> {
    let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut bytes = format!("{} {target} HTTP/1.1\r\n", request.method()).into_bytes();
    let headers = request.headers();
    if !headers.contains_key(HOST) {
        bytes.extend(b"host: localhost\r\n");
    }
    if !request.body().is_empty() && !headers.contains_key(CONTENT_LENGTH) {
        // Writing into memory does not fail.
        let _ = write!(bytes, "content-length: {}\r\n", request.body().len());
    }
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"\r\n");
    bytes.extend_from_slice(request.body());
    bytes
}
