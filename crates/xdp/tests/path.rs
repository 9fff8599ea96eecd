//! A path with a smaller MTU than our interface, which the router between them reports.
#![expect(clippy::panic, reason = "all of this runs inside tests")]

mod world;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::{Address, Driver as _, End, ListenOptions, Listener, Received, Sent, Sink, Token};
use tautline_xdp::{Config, Driver};
use world::{Far, INTERFACE, OURS, World, ip_of};

/// Bytes of the answer to each byte.
const ANSWER: usize = 200_000;

/// Repeats each byte that arrives.
struct Repeat;

impl Sink for Repeat {
    fn accepted(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Listener) {}
    fn connected(&mut self, _: &mut dyn tautline_io::Driver, _: Token) {}
    fn received(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, data: Received<'_>) {
        let mut buf = Buf::new();
        buf.put(&data.bytes().repeat(ANSWER));
        let Sent::Pending = driver.send(token, buf) else { panic!("more than a window") };
    }
    fn sent(&mut self, _: &mut dyn tautline_io::Driver, _: Token, _: Buf) {}
    fn ended(&mut self, driver: &mut dyn tautline_io::Driver, token: Token, _: End) {
        driver.close(token, false);
    }
    fn woken(&mut self, _: &mut dyn tautline_io::Driver) {}
    fn accept_failed(&mut self, _: &mut dyn tautline_io::Driver, _: std::io::Error) {}
}

#[test]
fn a_router_shortens_what_does_not_fit_its_next_link() {
    let Some(world) = World::new() else { return };
    // The peer accepts segments that fit our interface, but not the link between.
    let far = Far::new(&world, 1300, 1460);
    let space = far.space().to_owned();
    world.enter_ours();
    let mut driver = Driver::with(Config::new(INTERFACE)).unwrap();
    let at: Vec<_> = OURS
        .iter()
        .map(|&address| {
            let any = Address::Tcp(SocketAddr::new(ip_of(address), 0));
            let (_, Address::Tcp(at)) = driver.listen(&any, &ListenOptions::default()).unwrap() else {
                panic!("no TCP")
            };
            at
        })
        .collect();
    let peer = thread::spawn(move || {
        world::enter_named(&space);
        for at in at {
            let mut peer = TcpStream::connect_timeout(&at, Duration::from_secs(60)).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            peer.write_all(b"a").unwrap();
            let mut answer = vec![0; ANSWER];
            peer.read_exact(&mut answer).unwrap();
            assert!(answer.iter().all(|&byte| byte == b'a'), "{at}");
        }
    });
    while !peer.is_finished() {
        driver.turn(Some(Duration::from_millis(10)), &mut Repeat).unwrap();
    }
    peer.join().unwrap();
}
