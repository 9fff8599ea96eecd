//! The example `chat`, as its users see it.

use crate::example as chat;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tautline::{Address, ClientConfig, CloseCode, Config, Error, Fused, Socket, Target};
use tokio::runtime::{Builder, Runtime};

/// Enters a room with a cookie.
fn enter(address: &Address, room: &str, user: &str) -> Result<Socket, Error> {
    let mut target = Target::new(&format!("ws://{address}/{room}")).unwrap();
    target.headers.insert("cookie", format!("theme=dark; user={user}").parse().unwrap());
    Socket::connect::<Fused>(target, ClientConfig::default(), Config::default())
}

fn line(socket: &mut Socket) -> String {
    let message = socket.receive_timeout(Duration::from_secs(60)).unwrap().unwrap();
    String::from_utf8(message.data().to_vec()).unwrap()
}

fn get(address: &Address, path: &str) -> String {
    let mut stream = TcpStream::connect(address.to_string()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn database() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

#[test]
fn users_meet_in_rooms_and_strangers_stay_outside() {
    let database = database();
    let server = chat::serve("127.0.0.1:0".parse().unwrap(), 0, database.handle()).unwrap();
    let address = server.addresses()[0].clone();
    let mut ada = enter(&address, "lobby", "ada").unwrap();
    assert_eq!(line(&mut ada), "ada joins");
    let mut bob = enter(&address, "lobby", "bob").unwrap();
    assert_eq!([line(&mut ada), line(&mut bob)], ["bob joins"; 2]);
    for stranger in ["mallory", ""] {
        let refused = enter(&address, "lobby", stranger).unwrap_err();
        assert!(refused.to_string().contains("403"), "{refused}");
    }
    // A typing notice does not come back to its author.
    ada.text("/typing").unwrap();
    ada.text("hello").unwrap();
    assert_eq!(line(&mut ada), "ada says: hello");
    assert_eq!([line(&mut bob), line(&mut bob)], ["ada is typing", "ada says: hello"]);
    assert!(get(&address, "/health").ends_with("fine\n"));
    assert!(get(&address, "/metrics").ends_with("chat_open 2\n"));
    assert!(get(&address, "/lobby").contains("<!doctype html>"));
    drop(bob);
    assert_eq!(line(&mut ada), "bob leaves");
    server.drain(CloseCode::GOING_AWAY, "the chat closes", Duration::from_secs(5));
    assert!(ada.receive().is_err());
    drop(ada);
    server.join().unwrap();
}

#[test]
fn logins_wait_for_the_database_together() {
    let database = database();
    let server = chat::serve("127.0.0.1:0".parse().unwrap(), 0, database.handle()).unwrap();
    let address = server.addresses()[0].clone();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..100 {
            let address = &address;
            scope.spawn(move || drop(enter(address, "crowd", &format!("user{number}")).unwrap()));
        }
    });
    // One after another they would take 5 s.
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.join().unwrap();
}
