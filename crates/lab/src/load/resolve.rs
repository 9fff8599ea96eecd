use super::server::{PATIENCE, REFUSED, Server};
use crate::Error;
use std::cell::RefCell;
use std::io;
use std::net::ToSocketAddrs;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tautline::{Address, Cause, Config, Conn, ConnectError, Deadline, DialId, Handler, Message, Opening, Target};

/// The target of a server for its loops, with an address that answers, so that no further connection needs a look-up.
pub(super) fn resolved(server: &Server) -> Result<Target, Error> {
    server.target_of_loop(with_address(server)?)
}

fn with_address(server: &Server) -> Result<Target, Error> {
    let mut target = server.target.clone();
    if target.address.is_none() {
        target.address = target.literal().map(Address::Tcp);
    }
    if target.address.is_some() || target.proxy.is_some() {
        return Ok(target);
    }
    let (host, port) = (target.host().to_owned(), target.port());
    let failed = |error: io::Error| {
        let hint = if error.kind() == io::ErrorKind::ConnectionRefused { REFUSED } else { "" };
        Error::Network(format!("cannot connect to {host}:{port}: {error}{hint}"))
    };
    let addresses: Vec<_> = (host.as_str(), port).to_socket_addrs().map_err(failed)?.collect();
    let mut last = None;
    for &address in &addresses {
        target.address = Some(Address::Tcp(address));
        // A look at the only address would tell nothing that the first connection does not.
        let answers = if addresses.len() == 1 { Ok(()) } else { try_out(server, &target) };
        match answers {
            Ok(()) => return Ok(target),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| Error::Network(format!("{host} has no address")), failed))
}

/// Finds out whether a server is at the address of `target`.
///
/// Opens a whole connection, since the server would count one without a handshake as a failed one.
pub(super) fn try_out(server: &Server, target: &Target) -> io::Result<()> {
    let answer = Rc::new(RefCell::new(None));
    let app = Box::new(FirstAnswer(Rc::clone(&answer)));
    let mut config = Config::default();
    config.deadlines.connect = PATIENCE;
    let made = server.make_loop(&server.tls, config, app, None);
    // The run will meet all errors but those of the address, and explain them.
    let (Ok(mut shard), Ok(target)) = (made, server.target_of_loop(target.clone())) else { return Ok(()) };
    shard.connect(Arc::new(target));
    while answer.borrow().is_none() {
        if shard.turn(PATIENCE).is_err() {
            return Ok(());
        }
    }
    // The address is known, whatever the server says to the end.
    shard.drain(PATIENCE);
    while !shard.is_drained() && shard.turn(PATIENCE).is_ok() {}
    match answer.take() {
        Some(Err(ConnectError::Io { error, .. })) => Err(error.kind().into()),
        Some(Err(ConnectError::Ended(Cause::Timeout(Deadline::Connect)))) => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// A handler that keeps the result of its only attempt to connect.
struct FirstAnswer(Rc<RefCell<Option<Result<(), ConnectError>>>>);

impl Handler for FirstAnswer {
    type State = ();

    fn on_open(&mut self, _conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        self.0.replace(Some(Ok(())));
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.0.replace(Some(Err(error.clone())));
    }
}
