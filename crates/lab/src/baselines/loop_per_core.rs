use super::{Baseline, MAX_MESSAGE, Source, source};
use crate::Error;
use std::net::SocketAddr;
use tautline::{Config, Conn, Handler, Message, Outgoing, Running, Server, SlowConsumer};

/// Our own server, one for each loop, so that connections can be dealt out evenly.
pub(super) fn serve(baseline: Baseline, address: SocketAddr, ready: impl FnOnce(&[SocketAddr])) -> Result<(), Error> {
    let mut config = Config::low_latency();
    config.limits.max_message = MAX_MESSAGE;
    config.limits.pool = 2 * MAX_MESSAGE;
    // Messages are to be answered, not dropped, however many are in flight.
    config.slow_consumer = SlowConsumer::Disconnect(4 * MAX_MESSAGE);
    config.offload.records = baseline.records.clone();
    let answer = baseline.is_source.then(source);
    let start = |number: usize| {
        let server = Server::new(baseline.tls.server(baseline.config.clone())).config(config.clone());
        let cpus = baseline.cpus.get(number % baseline.cpus.len().max(1)).copied();
        let answer = answer.clone();
        // A port in a row may be another program's, or one of connections that ended a minute ago.
        let at = if number == 0 { address } else { SocketAddr::new(address.ip(), 0) };
        let server = server.listen(at.into()).pin(cpus.into_iter().collect());
        server.start(move |_| App(answer.clone())).map_err(|error| Error::Failed(error.to_string()))
    };
    let loops = (0..baseline.threads).map(start).collect::<Result<Vec<_>, Error>>()?;
    ready(&loops.iter().filter_map(listens_at).collect::<Vec<_>>());
    loops.into_iter().try_for_each(|running| running.join().map_err(|error| Error::Failed(error.to_string())))
}

fn listens_at(running: &Running) -> Option<SocketAddr> {
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
