//! Bytes that wait in the proxy for slow peers, between real sockets.

use crate::kit::{Client, head, length, of_text, proxy, reader, scripted};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tautline::ServerHandle;

/// Bytes that may wait for one client: 64 KiB, what one read brings, and TLS or buffers that are not full.
const MOST: u64 = 512 << 10;

/// Waits until a number does not change any more.
fn settled(number: impl Fn() -> usize) -> usize {
    loop {
        let before = number();
        thread::sleep(Duration::from_millis(400));
        if before != 0 && number() == before {
            return before;
        }
    }
}

fn waiting(proxy: &ServerHandle) -> u64 {
    proxy.shards()[0].counters().memory_sending
}

#[test]
fn a_client_that_reads_nothing_gets_no_more_requests_answered() {
    const BODY: usize = 12_000;
    let served = Arc::new(AtomicUsize::new(0));
    let counter = served.clone();
    let (server, _) = scripted(move |mut stream| {
        let mut reader = reader(&stream);
        while let Some(head) = head(&mut reader) {
            let path = head.split(' ').nth(1).unwrap();
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n{path:>BODY$}");
            stream.write_all(response.as_bytes()).unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    let proxy = proxy(&[server]);
    let mut client = Client::of(&proxy);
    let requests: String = (0..600).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.ask(&requests);
    let before = settled(|| served.load(Ordering::SeqCst));
    assert!(waiting(&proxy) < MOST, "{} bytes after {before} responses", waiting(&proxy));
    assert!(before < 600, "the kernel's buffers do not take them all");
    for number in 0..600 {
        let head = client.head();
        assert_eq!(client.exact(length(&head).unwrap()).trim_start(), format!("/{number}"));
    }
}

#[test]
fn a_client_that_reads_nothing_gets_no_more_answers_of_the_proxy() {
    let body = "x".repeat(60_000);
    let proxy = of_text(&format!("[[route]]\nanswer = {{ status = 200, body = {body:?} }}\n"));
    let mut client = Client::of(&proxy);
    let count = || usize::try_from(proxy.shards()[0].counters().bytes_out).unwrap();
    client.ask(&"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(600));
    settled(count);
    assert!(waiting(&proxy) < MOST, "{} bytes", waiting(&proxy));
    for _ in 0..600 {
        let head = client.head();
        assert!(client.exact(length(&head).unwrap()) == body);
    }
}
