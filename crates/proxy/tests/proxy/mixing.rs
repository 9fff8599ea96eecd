//! Bytes of one request never reach another client.

use crate::kit::{Client, body_of, head, length, proxy, reader, scripted};
use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// Answers in ways after which a connection must not be used again, or may be.
fn tricky(mut stream: TcpStream) {
    let mut reader = reader(&stream);
    while let Some(head) = head(&mut reader) {
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let kind = path.split('/').nth(1).unwrap();
        if kind != "early" {
            let _ = body_of(&head, &mut reader);
        }
        let len = path.len();
        let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n{path}");
        let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
        let answer = match kind {
            "extra" => format!("{whole}{poison}"),
            "head" => format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n"),
            "empty" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            "odd" => format!("HTTP/1.1 204 No Content\r\nContent-Length: {}\r\n\r\n", poison.len()),
            "same" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_owned(),
            "hints" => format!("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n{whole}"),
            "refused" => format!(
                "HTTP/1.1 426 No\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: {len}\r\n\r\n{path}"
            ),
            _ => whole,
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
        if kind == "odd" {
            thread::sleep(Duration::from_millis(50));
            let _ = stream.write_all(poison.as_bytes());
        }
    }
}

#[test]
fn each_client_gets_the_responses_to_its_own_requests() {
    let (server, _) = scripted(tricky);
    let proxy = proxy(&[server]);
    let clients: Vec<_> = (0..4)
        .map(|who| {
            let mut client = Client::of(&proxy);
            let address = proxy.addresses()[0].to_string();
            thread::spawn(move || {
                for number in 0..30 {
                    for kind in ["plain", "extra", "head", "empty", "odd", "same", "hints", "refused", "early", "pair"]
                    {
                        let path = format!("/{kind}/{who}/{number}");
                        let request = match kind {
                            "head" => format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"),
                            "refused" => format!(
                                "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
                            ),
                            // The response comes before the rest of the body, which looks like a request.
                            "early" => format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nGET /x"),
                            "pair" => format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").repeat(2),
                            _ => format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"),
                        };
                        client.ask(&request);
                        for _ in 0..if kind == "pair" { 2 } else { 1 } {
                            let head = client.head();
                            if matches!(kind, "head" | "empty" | "odd" | "same") {
                                assert!(!head.contains("200") || kind == "head", "{path}: {head}");
                            } else {
                                assert_eq!(client.exact(length(&head).unwrap()), path, "{head}");
                            }
                            if head.contains("connection: close") {
                                let stream = TcpStream::connect(&address).unwrap();
                                client = Client { reader: reader(&stream), stream };
                            }
                        }
                    }
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}
