//! The pipes between a loop and its clients, in memory.

use super::event::Event;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_engine::connection::{self, Connection, Context};
use tautline_tls::plain;

/// Bytes that the loop can send to a client that does not read: the part of the kernel's buffers.
const KERNEL: usize = 64 << 10;

/// Everything outside of the loop.
pub(super) struct Net {
    pub(super) pipes: Vec<Pipe>,
    pub(super) context: Context,
    /// Virtual time since the begin.
    pub(super) now: Duration,
    pub(super) begin: Instant,
    /// When the loop wants its next turn.
    pub(super) due: Option<Duration>,
    pub(super) wake: Arc<Wake>,
    /// Whether the loop has stopped to accept.
    pub(super) is_closed: bool,
    pub(super) is_paused: bool,
}

/// One connection, by the number that is the index of its token.
pub(super) struct Pipe {
    pub(super) end: ClientEnd,
    /// Bytes for the loop.
    pub(super) inbound: VecDeque<u8>,
    /// Bytes for the client.
    pub(super) outbound: VecDeque<u8>,
    pub(super) accepted: bool,
    /// Whether the client takes bytes.
    pub(super) reads: bool,
    pub(super) loop_pauses: bool,
    /// A send that the client's slowness holds up.
    pub(super) pending: Option<Buf>,
    /// The client has ended its direction, and whether the loop knows.
    pub(super) client_ended: bool,
    pub(super) end_told: bool,
    /// The loop has ended its direction.
    pub(super) loop_ended: bool,
    /// The loop has freed the connection.
    pub(super) is_released: bool,
}

/// The user of the client's end of a pipe.
pub(super) enum ClientEnd {
    WebSocket { connection: Box<Connection<plain::Session>>, events: VecDeque<Event>, is_over: bool },
    Http { received: Vec<u8>, head_only: bool },
}

/// Wakes the loop from other threads.
#[derive(Default)]
pub(super) struct Wake {
    woken: Mutex<bool>,
    news: Condvar,
}

impl Wake {
    pub(super) fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.news.notify_all();
    }

    pub(super) fn take(&self) -> bool {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until another thread wakes the loop. False if none does for `longest`.
    pub(super) fn wait(&self, longest: Duration) -> bool {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.news.wait_timeout_while(woken, longest, |woken| !*woken);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Net {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            pipes: Vec::new(),
            context: Context::new()?,
            now: Duration::ZERO,
            begin: Instant::now(),
            due: None,
            wake: Arc::default(),
            is_closed: false,
            is_paused: false,
        })
    }

    /// Opens a pipe, and returns its number.
    pub(super) fn add(&mut self, end: ClientEnd) -> usize {
        self.pipes.push(Pipe {
            end,
            inbound: VecDeque::new(),
            outbound: VecDeque::new(),
            accepted: false,
            reads: true,
            loop_pauses: false,
            pending: None,
            client_ended: false,
            end_told: false,
            loop_ended: false,
            is_released: self.is_closed,
        });
        self.pipes.len() - 1
    }

    /// Whether another thread has woken the loop since its last turn.
    pub(super) fn is_woken(&self) -> bool {
        self.wake.wait(Duration::ZERO)
    }

    /// Has every client read its bytes and write its answers.
    pub(super) fn run_clients(&mut self) {
        let now = self.begin + self.now;
        for pipe in &mut self.pipes {
            pipe.run_client(&mut self.context, now);
        }
    }
}

impl Pipe {
    /// Whether the loop has something to do for it.
    pub(super) fn is_ready(&self) -> bool {
        !self.is_released
            && (!self.accepted
                || self.pending.is_some() && self.room() > 0
                || !self.loop_pauses && (!self.inbound.is_empty() || self.client_ended && !self.end_told))
    }

    /// Bytes that the loop can send now.
    pub(super) fn room(&self) -> usize {
        if self.reads { usize::MAX } else { KERNEL.saturating_sub(self.outbound.len()) }
    }

    /// Moves as much of `buf` to the client as there is room for. Whether that is all.
    pub(super) fn take(&mut self, buf: &mut Buf) -> bool {
        let taken = buf.len().min(self.room());
        self.outbound.extend(&buf.filled()[..taken]);
        buf.take(taken);
        buf.is_empty()
    }

    fn run_client(&mut self, context: &mut Context, now: Instant) {
        let ended = self.loop_ended || self.is_released;
        match &mut self.end {
            ClientEnd::Http { received, .. } if self.reads => received.extend(self.outbound.drain(..)),
            ClientEnd::Http { .. } => {}
            ClientEnd::WebSocket { connection, events, is_over } => {
                while self.reads && !self.outbound.is_empty() && !*is_over {
                    let window = connection.window(context);
                    let read = window.len().min(self.outbound.len());
                    for (to, from) in window.iter_mut().zip(self.outbound.drain(..read)) {
                        *to = from;
                    }
                    connection.filled(read, now);
                    take_events(connection, events, is_over, context);
                }
                if ended && self.outbound.is_empty() && !*is_over {
                    connection.ended();
                }
                take_events(connection, events, is_over, context);
                if self.client_ended {
                    return;
                }
                while connection.has_output() {
                    let output = connection.output(context);
                    let len = output.len();
                    self.inbound.extend(output);
                    connection.written(len, context);
                }
                self.client_ended = connection.is_finished();
            }
        }
    }
}

fn take_events(
    connection: &mut Connection<plain::Session>,
    events: &mut VecDeque<Event>,
    is_over: &mut bool,
    context: &mut Context,
) {
    while let Some(event) = connection.next(context) {
        *is_over |= matches!(event, connection::Event::Closed(_) | connection::Event::Failed(_));
        events.extend(Event::new(event, connection.payload()));
    }
}
