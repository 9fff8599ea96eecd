use super::baseline::Baseline;
use super::source::{MAX_MESSAGE, Source};
use std::net::SocketAddr;
use tautline::{Config, Conn, Handler, Message, Outgoing, Server, ServerHandle, SlowConsumer, Tls};
use tautline_measure::{Error, loops};

/// Serves with one of our servers for each loop, so that a load can distribute its connections evenly.
pub(super) fn serve(baseline: &Baseline, address: SocketAddr, ready: impl FnOnce(&[SocketAddr])) -> Result<(), Error> {
    let mut config = Config::low_latency();
    config.limits.max_message = MAX_MESSAGE;
    config.limits.pool = 2 * MAX_MESSAGE;
    // Every message gets its answer, even with many in flight.
    config.slow_consumer = SlowConsumer::Disconnect(4 * MAX_MESSAGE);
    config.offload.records = baseline.records.clone();
    let source = baseline.is_source.then(Source::new);
    let start = |number: usize| {
        let server = Server::new(Tls { engine: baseline.tls, config: baseline.config.clone() }).config(config.clone());
        let source = source.clone();
        // The next port may belong to another program, or to connections that ended a minute ago.
        let at = if number == 0 { address } else { SocketAddr::new(address.ip(), 0) };
        let server = server.listen(at.into()).pin(baseline.cpu(number).into_iter().collect());
        loops::start_server(server, false, Box::new(move |_| Box::new(Answers(source.clone())))).map_err(Error::failed)
    };
    let loops = (0..baseline.threads).map(start).collect::<Result<Vec<_>, Error>>()?;
    ready(&loops.iter().filter_map(listens_at).collect::<Vec<_>>());
    loops.into_iter().try_for_each(|running| running.join().map_err(Error::failed))
}

fn listens_at(running: &ServerHandle) -> Option<SocketAddr> {
    match running.addresses().first()? {
        tautline::Address::Tcp(address) => Some(*address),
        _ => None,
    }
}

/// The application of the measured server.
struct Answers(Option<Source>);

impl Handler for Answers {
    type State = ();

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        match &self.0 {
            None => conn.send(Outgoing::from(&message)),
            Some(source) => conn.send(Outgoing::binary(source.answer(&message))),
        };
    }
}
