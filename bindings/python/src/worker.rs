//! Threads with loops, which never take the GIL.

use crate::crossing::{Order, Orders, Outbox, Peer, Shared};
use crate::options::close_code;
use crate::relay::Relay;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use tautline::layers::engine::{HandshakePool, SharedLimits};
use tautline::layers::tls::Engine;
use tautline::{Address, Config, Conn, DriverConfig, Error, Kind, Listeners, Outgoing, Shard, ShardHandle};

/// Bytes of a connection above which the loop looks again once the kernel has taken what it can.
const LOOK_ABOVE: usize = 8 << 10;

/// A loop before it starts.
pub(crate) struct Plan {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    pub(crate) config: Arc<Config>,
    pub(crate) listen: Vec<Address>,
    pub(crate) listeners: Arc<Listeners>,
    /// The number of loops that listen.
    pub(crate) loops: usize,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) relay: Relay,
    pub(crate) limits: SharedLimits,
}

/// Starts a loop on a thread of its own. Returns the addresses at which it listens, with actual ports.
pub(crate) fn start<E: Engine>(
    plan: Plan,
    engine: E,
    pool: Option<HandshakePool<E::Session>>,
) -> io::Result<Vec<Address>> {
    let (report, reported) = channel();
    let name = format!("{}-{}", plan.name, plan.number);
    std::thread::Builder::new().name(name).spawn(move || run(plan, engine, pool, &report))?;
    reported.recv().unwrap_or_else(|_| Err(io::Error::other("the loop ended at once")))
}

fn run<E: Engine>(
    plan: Plan,
    engine: E,
    pool: Option<HandshakePool<E::Session>>,
    report: &Sender<io::Result<Vec<Address>>>,
) {
    let outbox = plan.outbox.clone();
    match made(plan, engine, pool, &DriverConfig::default()) {
        Ok((mut shard, addresses)) => {
            outbox.connect(shard.handle(), wake);
            // The thread that started the loop waits for this.
            let _ = report.send(Ok(addresses));
            turn_to_end(&mut shard, &outbox);
            let mut relay = shard.into_handler();
            relay.stopped();
        }
        Err(error) => {
            let _ = report.send(Err(error));
        }
    }
}

/// Wakes a loop.
pub(crate) fn wake(shard: &ShardHandle) {
    // A full queue has woken the loop already.
    let _ = shard.with_handler(|_: &mut Relay, _| {});
}

/// Makes a loop that listens.
pub(crate) fn made<E: Engine>(
    plan: Plan,
    engine: E,
    pool: Option<HandshakePool<E::Session>>,
    driver: &DriverConfig,
) -> io::Result<(Shard<E, Relay>, Vec<Address>)> {
    let mut shard = Shard::new(plan.number, plan.config, engine, driver.open()?, plan.relay)?;
    shard.share_limits(plan.limits);
    if let Some(pool) = pool {
        shard.set_handshake_pool(pool);
    }
    let mut addresses = plan.listeners.begin((plan.number, plan.loops), &mut shard, &plan.listen).map_err(failed)?;
    addresses.extend(plan.listeners.addresses_of_sockets().map_err(failed)?);
    Ok((shard, addresses))
}

/// The system's kind of error, with our text.
fn failed(error: Error) -> io::Error {
    match &error {
        Error::Listen { error: of_system, .. } | Error::Machine { error: of_system, .. } => {
            io::Error::new(of_system.kind(), error.to_string())
        }
        _ => io::Error::other(error),
    }
}

fn turn_to_end<E: Engine>(shard: &mut Shard<E, Relay>, outbox: &Outbox) {
    let mut orders = Orders::default();
    loop {
        outbox.take(&mut orders);
        apply(shard, &mut orders);
        shard.handler().wake();
        if shard.is_drained() {
            return;
        }
        if shard.turn(None).is_err() {
            return;
        }
        shard.handler().wake();
    }
}

/// Carries out the operations of Python.
pub(crate) fn apply<E: Engine>(shard: &mut Shard<E, Relay>, orders: &mut Orders) {
    if orders.list.is_empty() {
        return;
    }
    let Orders { list, bytes, .. } = orders;
    // Connections for which much may wait.
    let mut full: Vec<Arc<Shared>> = Vec::new();
    let mut rest: &[u8] = bytes;
    let mut payload = |len: usize| {
        let (payload, behind) = rest.split_at(len);
        rest = behind;
        payload
    };
    for order in list.drain(..) {
        match order {
            Order::Send { to, kind, len } => {
                send_one(shard, &to, kind, payload(len));
                sent(&mut full, to, len);
            }
            Order::SendWhole { to, kind, payload } => {
                send_one(shard, &to, kind, &payload);
                sent(&mut full, to, payload.len());
            }
            Order::Fragment { to, kind, len, last } => {
                let payload = payload(len);
                on_conn(shard, &to, |relay, conn| {
                    conn.fragment(kind, payload, last);
                    relay.look(conn);
                });
                sent(&mut full, to, len);
            }
            Order::Broadcast { to, kind, len } => {
                // The loop itself asks, so that its queue of commands is not full for long.
                let _ = shard.handle().send_to(&to, outgoing(kind, payload(len)));
            }
            Order::Ping { to, len } => {
                let payload = payload(len);
                // Python has checked the length.
                on_conn(shard, &to, |_, conn| {
                    let _ = conn.ping(payload);
                });
            }
            Order::Close { to, code, len } => {
                let reason = String::from_utf8_lossy(payload(len));
                on_conn(shard, &to, |_, conn| {
                    conn.pause(false);
                    conn.close(close_code(code), &reason);
                });
            }
            Order::Resume { to } => on_conn(shard, &to, |_, conn| conn.pause(false)),
            Order::Room { to, low } => on_conn(shard, &to, |relay, conn| relay.wants_room(conn, low)),
            Order::Dial { target, shared, window } => {
                let dial = shard.connect(Arc::from(target));
                shard.handler().dialing(dial, shared, window);
            }
            Order::Drain { code, len, deadline } => {
                let reason = String::from_utf8_lossy(payload(len));
                shard.drain(close_code(code), &reason, deadline);
            }
        }
    }
    orders.clear();
    // Here and not in the next turn, which may wait for long: messages that were held back may arrive now.
    shard.flush();
    // Bytes that the kernel took at once do not wait.
    for to in full {
        on_conn(shard, &to, |relay, conn| relay.look(conn));
    }
}

/// Notes that the loop has taken bytes, and whether much waits now.
fn sent(full: &mut Vec<Arc<Shared>>, to: Arc<Shared>, len: usize) {
    to.unsent.fetch_sub(len, Ordering::Relaxed);
    if to.buffered.load(Ordering::Relaxed) > LOOK_ABOVE {
        full.push(to);
    }
}

/// Notes what waits for a connection's peer, once the kernel has taken what it can.
pub(crate) fn look<E: Engine>(shard: &mut Shard<E, Relay>, to: &Shared) {
    if to.buffered.load(Ordering::Relaxed) > LOOK_ABOVE {
        on_conn(shard, to, |relay, conn| relay.look(conn));
    }
}

/// Sends one message.
pub(crate) fn send_one<E: Engine>(shard: &mut Shard<E, Relay>, to: &Shared, kind: Kind, payload: &[u8]) {
    let message = outgoing(kind, payload);
    on_conn(shard, to, |relay, conn| {
        conn.send(message);
        relay.look(conn);
    });
}

/// Acts on a connection that is open.
fn on_conn<E: Engine>(shard: &mut Shard<E, Relay>, to: &Shared, act: impl FnOnce(&mut Relay, &mut Conn<'_, Peer>)) {
    if let Some(id) = to.id.get() {
        shard.with_conn(*id, act);
    }
}

/// A message of Python. Text is checked here, where it was made of a `str` or Python has checked it.
fn outgoing(kind: Kind, payload: &[u8]) -> Outgoing<'_> {
    let mut message = Outgoing::binary(payload);
    message.kind = kind;
    message
}
