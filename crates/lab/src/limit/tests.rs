use super::{Load, listen, serve};
use crate::{Error, Span};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_testkit::ClosedPort;

/// An echo server on a thread of its own.
struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Server {
    fn start() -> Self {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        Self { address, stop, thread: Some(std::thread::spawn(move || serve(listener, &seen))) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.thread.take().unwrap().join();
        assert!(matches!(result, Ok(Ok(()))) || std::thread::panicking());
    }
}

fn load(address: SocketAddr, connections: usize, size: usize, pipeline: usize) -> Load {
    let span = Span { warmup: Duration::from_millis(20), duration: Duration::from_millis(100) };
    Load { address, connections, size, pipeline, span, server_pid: Some(std::process::id()) }
}

#[test]
fn every_message_comes_back() {
    let server = Server::start();
    for (connections, size, pipeline) in [(1, 1, 1), (10, 64, 4), (3, 200_000, 3)] {
        let measured = load(server.address, connections, size, pipeline).run().unwrap();
        assert!(measured.count > 0, "{connections} x {size} x {pipeline}");
        assert_eq!(measured.latencies.count(), measured.count);
        assert!(measured.own_cpu > Duration::ZERO && measured.server_cpu.is_some());
    }
}

#[test]
fn the_server_keeps_bytes_that_a_slow_reader_does_not_take() {
    let server = Server::start();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let sent: Vec<u8> = (0..32_usize << 20).map(|i| i.to_le_bytes()[1]).collect();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&copy).unwrap());
    // Both socket buffers fill up before the first byte is read.
    std::thread::sleep(Duration::from_millis(100));
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent);
}

#[test]
fn a_broken_connection_leaves_the_others_alone() {
    let server = Server::start();
    drop(TcpStream::connect(server.address).unwrap());
    let mut reset = TcpStream::connect(server.address).unwrap();
    reset.write_all(&[1; 100_000]).unwrap();
    drop(reset);
    assert!(load(server.address, 2, 10, 1).run().unwrap().count > 0);
}

/// Accepts one connection and answers its first bytes with `reply`.
fn liar(reply: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 64];
        assert!(stream.read(&mut bytes).unwrap() > 0);
        stream.write_all(reply).unwrap();
        // Holds the connection until the other side gives up.
        while matches!(stream.read(&mut bytes), Ok(1..)) {}
    });
    address
}

#[test]
fn wrong_replies_fail_the_run() {
    let result = load(liar(&[0xff; 8]), 1, 8, 1).run();
    assert!(matches!(result, Err(Error::WrongReply(_))), "{result:?}");
}

#[test]
fn a_server_that_closes_fails_the_run() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closing = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let result = load(address, 1, 8, 1).run();
    closing.join().unwrap();
    assert!(matches!(result, Err(Error::Failed(_) | Error::Network(_))), "{result:?}");
}

#[test]
fn tells_a_closed_port_from_arguments_that_make_no_sense() {
    let port = ClosedPort::new().unwrap();
    assert!(matches!(load(port.address(), 1, 8, 1).run(), Err(Error::Network(_))));
    assert!(matches!(load(port.address(), 1, 0, 1).run(), Err(Error::Usage(_))));
}
