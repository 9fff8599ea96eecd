//! Our client side against a server of others.
//!
//! `cargo xtask http2` starts one (`tests/interop/python/http2_server.py`). It names the address in `TAUTLINE_HTTP2_SERVER`, and
//! the file with the authority in `TAUTLINE_HTTP2_CA`. Without these variables the test is skipped with a message.

use crate::client::Client;
use std::env;
use tautline::{Address, Roots};

#[test]
fn hypercorn_answers_requests_and_websockets() {
    let Some((server, authority)) = env::var("TAUTLINE_HTTP2_SERVER").ok().zip(env::var_os("TAUTLINE_HTTP2_CA")) else {
        println!("skipped: TAUTLINE_HTTP2_SERVER and TAUTLINE_HTTP2_CA name no server");
        return;
    };
    let roots = Roots::Pem(std::fs::read(authority).unwrap());
    let mut client = Client::with_roots(&Address::Tcp(server.parse().unwrap()), roots);
    let get = client.get("/");
    let answer = client.answer(get);
    assert_eq!((answer.status, &answer.body[..]), (200, &b"HTTP/2"[..]));
    let body = vec![7; 60_000];
    let post = client.post("/echo", &body);
    assert_eq!(client.answer(post).body, body);
    let sockets: Vec<u32> = (0..10).map(|_| client.websocket("/")).collect();
    for (number, socket) in sockets.iter().enumerate() {
        assert_eq!(client.opened(*socket), 200);
        client.text(*socket, &format!("hello {number}"));
    }
    for (number, socket) in sockets.iter().enumerate() {
        assert_eq!(client.message(*socket), format!("hello {number}").as_bytes());
    }
    // More than the first windows.
    let large = "x".repeat(300_000);
    client.text(sockets[3], &large);
    assert_eq!(client.message(sockets[3]), large.as_bytes());
    client.close(sockets[0]);
    assert_eq!(client.close_code(sockets[0]), Some(1000));
    client.text(sockets[1], "still");
    assert_eq!(client.message(sockets[1]), b"still");
}
