//! Servers that cannot start.

use crate::common::{App, PATIENCE};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use tautline::{Address, Error, Server, Tls};

/// What `start` says of a server of three loops, of which the second ends before it stands; and where it was to listen.
fn half_started(break_off: fn()) -> (Error, Address) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (done, started) = channel();
    std::thread::spawn(move || {
        let server = Server::new(Tls::Plain).listen(free.into()).shards(3);
        let result = server.start(move |shard| {
            if shard == 1 {
                break_off();
            }
            App::default()
        });
        done.send(result.map(drop)).unwrap();
    });
    let result = started.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("starting hangs"));
    (result.unwrap_err(), free.into())
}

#[test]
fn a_loop_that_panics_at_the_start_takes_the_others_along() {
    let (error, address) = half_started(|| panic!("no such shard"));
    assert!(matches!(&error, Error::Loop(why) if why == "no such shard"), "{error}");
    let Address::Tcp(address) = address else { panic!("{address}") };
    assert!(TcpStream::connect(address).is_err(), "somebody listens");
}
