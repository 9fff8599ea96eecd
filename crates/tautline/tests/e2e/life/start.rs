//! Servers that cannot start.

use crate::common::{App, PATIENCE};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use tautline::{Error, Server};
use tautline_testkit::ClosedPort;

/// The error of `start` for a server of three loops, if the second one fails before it is ready.
fn half_started(at: SocketAddr, break_off: fn()) -> Error {
    let (done, started) = channel();
    std::thread::spawn(move || {
        let server = Server::plain().listen(at.into()).shards(3);
        let result = server.start(move |shard| {
            if shard == 1 {
                break_off();
            }
            App::default()
        });
        done.send(result.map(drop)).unwrap();
    });
    let result = started.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("starting hangs"));
    result.unwrap_err()
}

#[test]
fn a_loop_that_panics_at_the_start_ends_the_others() {
    let port = ClosedPort::new().unwrap();
    let error = half_started(port.address(), || panic!("no such shard"));
    assert!(matches!(&error, Error::Loop(why) if why == "no such shard"), "{error}");
    assert!(TcpStream::connect(port.address()).is_err(), "a loop still listens");
}
