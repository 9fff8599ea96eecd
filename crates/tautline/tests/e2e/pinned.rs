//! Loops that are pinned to CPUs.

use crate::common::server::{client_config, config, server_config};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tautline::layers::io::machine;
use tautline::{Client, CloseCode, Conn, Error, Handler, Message, Opening, Server, Target, Tls};

/// Reports the CPUs on which its thread may run, when a connection opens.
struct Where(Sender<String>);

impl Handler for Where {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        self.0.send(cpus.trim().to_owned()).unwrap();
        if conn.dial().is_some() {
            conn.close(CloseCode::NORMAL, "");
        }
    }

    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
}

#[test]
fn loops_run_on_their_cpus() {
    let cpus = machine::cpus().unwrap();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let (server_says, server_is) = channel();
    let server = Server::new(Tls::from(server_config())).listen("127.0.0.1:0".parse().unwrap()).config(config());
    let server = server.pin(vec![first]).start(move |_| Where(server_says.clone())).unwrap();
    let (client_says, client_is) = channel();
    let target = Target::new(&format!("wss://{}/", server.addresses()[0])).unwrap();
    let client = Client::new(client_config()).target(target).config(config()).pin(last);
    let client = client.start(move |_| Where(client_says)).unwrap();
    let wait = Duration::from_secs(20);
    assert_eq!(server_is.recv_timeout(wait).unwrap(), first.to_string());
    assert_eq!(client_is.recv_timeout(wait).unwrap(), last.to_string());
    client.join().unwrap();
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.join().unwrap();
}

#[test]
fn refuses_a_cpu_that_does_not_exist() {
    let target = Target::new("wss://127.0.0.1:1/").unwrap();
    let client = Client::new(client_config()).target(target).pin(100_000);
    let refused = client.start(|_| Where(channel().0)).err();
    assert!(matches!(refused, Some(Error::Machine { what: "cannot pin a thread", .. })), "{refused:?}");
}
