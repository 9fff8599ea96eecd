use super::{Baseline, MAX_MESSAGE, Source, source};
use crate::Error;
use std::net::SocketAddr;
use tautline::{Config, Conn, Handler, Message, Outgoing, Running, Server, SlowConsumer};

/// Ports in a row are looked for so often.
const TRIES: usize = 50;

/// Our own server, one for each loop, so that connections can be dealt out evenly.
pub(super) fn serve(baseline: Baseline, address: SocketAddr, ready: impl FnOnce(SocketAddr)) -> Result<(), Error> {
    let mut config = Config::low_latency();
    config.limits.max_message = MAX_MESSAGE;
    config.limits.pool = 2 * MAX_MESSAGE;
    // Messages are to be answered, not dropped, however many are in flight.
    config.slow_consumer = SlowConsumer::Disconnect(4 * MAX_MESSAGE);
    config.offload.records = baseline.records.clone();
    let answer = baseline.is_source.then(source);
    let start = |number: usize, address: SocketAddr| {
        let server = Server::new(baseline.tls.server(baseline.config.clone())).config(config.clone());
        let cpus = baseline.cpus.get(number % baseline.cpus.len().max(1)).copied();
        let answer = answer.clone();
        let server = server.listen(address.into()).pin(cpus.into_iter().collect());
        server.start(move |_| App(answer.clone()))
    };
    let mut loops = Vec::new();
    let mut first = address;
    for attempt in 0.. {
        loops = Vec::new();
        let mut next = address;
        while loops.len() < baseline.threads {
            match start(loops.len(), next) {
                Ok(running) => {
                    if loops.is_empty() {
                        first = port(&running).unwrap_or(address);
                    }
                    loops.push(running);
                    next = first;
                    next.set_port(first.port().wrapping_add(u16::try_from(loops.len()).unwrap_or(u16::MAX)));
                }
                Err(error) if attempt == TRIES || loops.is_empty() => return Err(Error::Failed(error.to_string())),
                // Another program has the next port.
                Err(_) => break,
            }
        }
        if loops.len() == baseline.threads {
            break;
        }
        for running in &loops {
            running.drain(tautline::CloseCode::GOING_AWAY, "", std::time::Duration::ZERO);
        }
    }
    ready(first);
    loops.into_iter().try_for_each(|running| running.join().map_err(|error| Error::Failed(error.to_string())))
}

fn port(running: &Running) -> Option<SocketAddr> {
    match running.addresses().first()? {
        tautline::Address::Tcp(address) => Some(*address),
        _ => None,
    }
}

struct App(Option<Source>);

impl Handler for App {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        match &self.0 {
            None => conn.send(Outgoing::from(&message)),
            Some(source) => conn.send(Outgoing::binary(super::answer(source, &message))),
        };
    }
}
