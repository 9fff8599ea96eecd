//! Servers whose names get other addresses, between real sockets.

use crate::kit::{Client, head, length, parsed, reader, scripted, start};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// A server that answers with its name. Returns its address, and counts connections.
fn named(name: &'static str) -> (SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let (address, count) = scripted(move |mut stream| {
        let mut reader = reader(&stream);
        while head(&mut reader).is_some() {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
        }
    });
    (address.strip_prefix("http://").unwrap().parse().unwrap(), count)
}

fn get(client: &mut Client) -> String {
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    client.exact(length(&head).unwrap())
}

#[test]
fn requests_go_to_the_addresses_that_a_name_has_now() {
    let ((one, of_one), (two, of_two)) = (named("one"), named("two"));
    // No resolver knows the name, so the addresses are those that the test sets.
    let live = parsed(
        "[[route]]\nto = \"app\"\n[backend.app]\nservers = [\"http://app.invalid:1\"]\nresolve-every = \"1h\"\n",
    );
    let set = |addresses: &[SocketAddr]| live.plan().backends[0].resolved[0].set(addresses.to_vec());
    let proxy = start(live.clone());
    let mut client = Client::of(&proxy);
    set(&[one]);
    assert_eq!([get(&mut client), get(&mut client)], ["one", "one"]);
    assert_eq!(of_one.load(Ordering::SeqCst), 1);
    set(&[two]);
    // The kept connection has an address that is gone, and the client's goes on.
    assert_eq!([get(&mut client), get(&mut client)], ["two", "two"]);
    assert_eq!((of_one.load(Ordering::SeqCst), of_two.load(Ordering::SeqCst)), (1, 1));
    set(&[one, two]);
    let mut others: Vec<Client> = (0..8).map(|_| Client::of(&proxy)).collect();
    for other in &mut others {
        other.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for other in &mut others {
        let head = other.head();
        assert!(head.starts_with("http/1.1 200 "), "{head}");
    }
}
