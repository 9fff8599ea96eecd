//! A server whose connections are tasks: one of the caller's runtime for each, in place of callbacks.
//!
//! The loops of the server stay as they are. Messages pass between loop and task in bounded queues. While a task lags, its
//! connection is not read from. This costs more than callbacks, or than a [`WebSocket`](crate::WebSocket), which has no
//! thread but its task's.
//!
//! ```no_run
//! use tautline_tokio::tasks::{Tasks, TaskSocket};
//!
//! async fn serve(mut socket: TaskSocket) {
//!     while let Some(message) = socket.recv().await {
//!         if socket.send(message).await.is_err() {
//!             break;
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let tasks = Tasks::new(serve);
//! // The crate `tautline` has `Server`, whose loops take it as their handler:
//! // let server = Server::plain().listen(address).start(move |_shard| tasks.clone())?;
//! # let _ = tasks.clone();
//! # }
//! ```

use crate::message::Message;
use http::Extensions;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tautline_engine::{Closed, Conn, ConnHandle, Delivery, Handler, Opening, Outgoing, Reply, Request};
use tautline_ws::{CloseCode, Kind};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};

/// Messages that may wait in each direction.
const CAPACITY: usize = 64;
/// Bytes from which a connection is not read from.
const BYTES: usize = 256 << 10;

type Serve = dyn Fn(TaskSocket) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;
type Route = dyn Fn(&Request<'_>) -> Reply<Task> + Send + Sync;

/// A [`Handler`] that runs a task for each connection. See the [module](self) for an example.
#[derive(Clone)]
pub struct Tasks {
    runtime: Handle,
    serve: Arc<Serve>,
    route: Option<Arc<Route>>,
}

impl Tasks {
    /// Runs `serve` for each connection, on the runtime from which this is called.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TaskSocket) -> F + Send + Sync + 'static,
    ) -> Self {
        Self { runtime: Handle::current(), serve: Arc::new(move |socket| Box::pin(serve(socket))), route: None }
    }

    /// Answers requests by `route`, which may reply later. Without one, every valid upgrade is accepted.
    #[must_use]
    pub fn with_route(mut self, route: impl Fn(&Request<'_>) -> Reply<Task> + Send + Sync + 'static) -> Self {
        self.route = Some(Arc::new(route));
        self
    }
}

/// The state of a connection on its loop, which a [route](Tasks::with_route) may begin with a value for the task.
#[derive(Default)]
pub struct Task {
    ends: Option<Ends>,
    values: Extensions,
}

impl Task {
    /// Passes a value to the task, such as the user that the route has found.
    ///
    /// [`TaskSocket::request`] has it among its extensions.
    ///
    /// ```
    /// use tautline_engine::{Ticket, Upgrade};
    /// use tautline_tokio::tasks::{Task, TaskSocket};
    ///
    /// #[derive(Clone)]
    /// struct User(String);
    ///
    /// async fn log_in(ticket: Ticket<Task>) {
    ///     let user = User("ada".into()); // the answer of a database
    ///     // A client that has left needs no answer.
    ///     let _left = ticket.upgrade(Upgrade::new().with_state(Task::default().with(user)));
    /// }
    ///
    /// async fn serve(socket: TaskSocket) {
    ///     let user = socket.request().extensions().get::<User>();
    ///     println!("{} is here", user.map_or("nobody", |user| &user.0));
    /// }
    /// ```
    #[must_use]
    pub fn with<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.values.insert(value);
        self
    }
}

/// A loop's end of a connection's queues.
struct Ends {
    incoming: UnboundedSender<Message>,
    outgoing: Receiver<Out>,
    shared: Arc<Shared>,
    /// Whether a message waits for the client. `on_drain` follows when it has left.
    lags: bool,
}

/// A task's wish, in order.
enum Out {
    Message(Message),
    Close(CloseCode, String),
}

/// The state that the loop and the task of a connection share.
#[derive(Default)]
struct Shared {
    /// Messages and bytes that wait for the task.
    messages: AtomicUsize,
    bytes: AtomicUsize,
    /// Whether the loop does not read from the connection, since the task lags.
    paused: AtomicBool,
    /// Whether the loop knows that messages wait for it.
    called: AtomicBool,
    closed: OnceLock<Closed>,
}

impl Shared {
    fn lags(&self, part: usize) -> bool {
        self.messages.load(Ordering::Acquire) >= CAPACITY / part || self.bytes.load(Ordering::Acquire) >= BYTES / part
    }
}

impl Handler for Tasks {
    type State = Task;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<Task> {
        match &self.route {
            Some(route) => route(request),
            None => Reply::upgrade(),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, Task>, opening: &Opening<'_>) {
        let (to_task, incoming) = mpsc::unbounded_channel();
        let (to_loop, outgoing) = mpsc::channel(CAPACITY);
        let shared = Arc::<Shared>::default();
        let mut request = opening.request.cloned().unwrap_or_default();
        request.extensions_mut().extend(std::mem::take(&mut conn.state().values));
        conn.state().ends = Some(Ends { incoming: to_task, outgoing, shared: shared.clone(), lags: false });
        let socket = TaskSocket { incoming, outgoing: Some(to_loop), shared, conn: conn.handle(), request };
        self.runtime.spawn((self.serve)(socket));
    }

    fn on_message(&mut self, conn: &mut Conn<'_, Task>, message: tautline_ws::Message<'_>) {
        let Some(Ends { incoming, shared, .. }) = &conn.state().ends else { return };
        let message = match message.kind() {
            Kind::Text => Message::Text(message.text().unwrap_or_default().to_owned()),
            Kind::Binary => Message::from(message.data().to_vec()),
        };
        shared.messages.fetch_add(1, Ordering::AcqRel);
        shared.bytes.fetch_add(message.data().len(), Ordering::AcqRel);
        // A task that has ended takes no messages: its connection is closing.
        let _ = incoming.send(message);
        if shared.lags(1) {
            // Reading the flag, as well as writing it, shows what a task has taken that did not find it set.
            shared.paused.swap(true, Ordering::AcqRel);
            // If the task has caught up meanwhile, nobody would resume.
            let lags = shared.lags(2);
            shared.paused.store(lags, Ordering::Release);
            conn.pause(lags);
        }
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, Task>) {
        if let Some(ends) = &mut conn.state().ends {
            ends.lags = false;
        }
        pump(conn);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, Task>, closed: &Closed) {
        if let Some(ends) = conn.state().ends.take() {
            // The task is told behind all messages, when the queue ends.
            let _ = ends.shared.closed.set(closed.clone());
        }
    }
}

/// Sends what the task has sent, as long as the client takes it.
fn pump(conn: &mut Conn<'_, Task>) {
    if let Some(ends) = &conn.state().ends {
        // Reading the flag, as well as writing it, shows what a task has sent that found it set.
        ends.shared.called.swap(false, Ordering::AcqRel);
    }
    while let Some(ends) = conn.state().ends.as_mut().filter(|ends| !ends.lags) {
        match ends.outgoing.try_recv() {
            Ok(Out::Close(code, reason)) => return conn.close(code, &reason),
            Ok(Out::Message(message)) => {
                if matches!(conn.send(Outgoing::from(&message)), Delivery::Queued(_))
                    && let Some(ends) = &mut conn.state().ends
                {
                    ends.lags = true;
                }
            }
            Err(mpsc::error::TryRecvError::Empty) => return,
            Err(mpsc::error::TryRecvError::Disconnected) => return conn.close(CloseCode::NORMAL, ""),
        }
    }
}

/// A task's end of a connection. Dropping it closes the connection with 1000, behind all messages that were sent.
pub struct TaskSocket {
    incoming: UnboundedReceiver<Message>,
    /// Always there, until it is dropped.
    outgoing: Option<Sender<Out>>,
    shared: Arc<Shared>,
    conn: ConnHandle,
    request: http::Request<()>,
}

/// The connection has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Ended {}

impl TaskSocket {
    /// The request that opened the connection. Its extensions have the values that a [`Task`] was given.
    #[must_use]
    pub const fn request(&self) -> &http::Request<()> {
        &self.request
    }

    /// A handle to the connection: for subscriptions, publishing and closing.
    #[must_use]
    pub const fn handle(&self) -> &ConnHandle {
        &self.conn
    }

    /// The next message; `None` if the connection has ended.
    ///
    /// The future may be dropped at any time: no message is lost.
    pub async fn recv(&mut self) -> Option<Message> {
        let message = self.incoming.recv().await?;
        self.shared.messages.fetch_sub(1, Ordering::AcqRel);
        self.shared.bytes.fetch_sub(message.data().len(), Ordering::AcqRel);
        if !self.shared.lags(2) && self.shared.paused.swap(false, Ordering::AcqRel) {
            // A connection that has ended needs no reading.
            let _ = self.conn.with_conn(|_: &mut Tasks, conn: &mut Conn<'_, Task>| conn.pause(false));
        }
        Some(message)
    }

    /// Sends a message. Waits while the client lags.
    ///
    /// If the future is dropped before it completes, the message was not sent.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn send(&self, message: impl Into<Message>) -> Result<(), Ended> {
        self.put(Out::Message(message.into())).await
    }

    /// Closes the connection behind all messages that were sent. Dropping the socket does so with 1000.
    ///
    /// Waits while the client lags. If the future is dropped before it completes, the connection is closed with 1000.
    ///
    /// # Errors
    /// The connection has ended.
    pub async fn close(self, code: CloseCode, reason: &str) -> Result<(), Ended> {
        self.put(Out::Close(code, reason.to_owned())).await
    }

    /// How the connection ended; `None` while it is open.
    #[must_use]
    pub fn closed(&self) -> Option<&Closed> {
        self.shared.closed.get()
    }

    async fn put(&self, out: Out) -> Result<(), Ended> {
        let outgoing = self.outgoing.as_ref().ok_or(Ended)?;
        outgoing.reserve().await.map_err(|_| Ended)?.send(out);
        self.call();
        Ok(())
    }

    /// Has the loop look at the queue, unless it will already.
    fn call(&self) {
        if !self.shared.called.swap(true, Ordering::AcqRel) {
            // A connection that has ended sends nothing.
            let _ = self.conn.with_conn(|_: &mut Tasks, conn: &mut Conn<'_, Task>| pump(conn));
        }
    }
}

impl Drop for TaskSocket {
    fn drop(&mut self) {
        // The loop finds the queue without a sender, and closes behind its messages.
        self.outgoing = None;
        let _ = self.conn.with_conn(|_: &mut Tasks, conn: &mut Conn<'_, Task>| {
            conn.pause(false);
            pump(conn);
        });
    }
}

impl fmt::Debug for TaskSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSocket").field("request", &self.request.uri()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tasks")
    }
}
