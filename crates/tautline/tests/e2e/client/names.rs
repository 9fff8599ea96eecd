//! International host names and zones of IPv6 addresses.

use super::{failure, start};
use crate::common::server::{client_config, config};
use crate::common::{App, Over, serve, serve_at};
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use tautline::{Address, CloseCode, Lookup, Resolver, Target};

/// Knows one host.
#[derive(Debug)]
struct Known(&'static str, SocketAddr);

impl Resolver for Known {
    fn resolve(&self, lookup: Lookup) {
        let known = lookup.host() == self.0;
        lookup.answer(if known { Ok(vec![self.1]) } else { Err("it is not registered") });
    }
}

/// Opens a connection to the server, and returns the `Host` of the request.
fn host_of_request(
    server: impl FnOnce(App) -> crate::common::server::Started,
    target: impl FnOnce(Address) -> Target,
) -> String {
    let (seen, hosts) = channel();
    let app = App::default().on_request(move |request| {
        seen.send(request.http.headers()["host"].to_str().unwrap().to_owned()).unwrap();
        tautline::Reply::upgrade()
    });
    let server = server(app);
    let (client, events) = start(target(server.address.clone()), App::default());
    events.open(0);
    client.drain(CloseCode::NORMAL, "", std::time::Duration::from_secs(5));
    client.join().unwrap();
    server.stop();
    hosts.recv().unwrap()
}

#[test]
fn an_international_name_is_ascii_for_the_resolver_and_the_request() {
    const ASCII: &str = "xn--bcher-kva.example";
    let host = host_of_request(
        |app| serve(Over::Plain, config(), app),
        |address| {
            let Address::Tcp(address) = address else { panic!("{address}") };
            Target::new("ws://Bücher.example/").unwrap().with_resolver(Known(ASCII, address))
        },
    );
    assert_eq!(host, ASCII);
    let error = Target::new("wss://ü b.example/").unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("no valid international name"), "{error}");
}

#[test]
fn a_zone_is_used_for_the_address_and_sent_to_nobody() {
    // The loopback interface has number 1.
    let mut asked = String::new();
    let host = host_of_request(
        |app| serve_at("[::1]:0", Over::Plain, 1, config(), app),
        |address| {
            asked = address.to_string();
            Target::new(&format!("ws://{}/", asked.replace("::1", "::1%1"))).unwrap()
        },
    );
    assert_eq!(host, asked);
    // A link-local address of no interface.
    let target = Target::new("ws://[fe80::1%999999]:1/").unwrap();
    let error = failure(target, client_config(), config());
    assert!(error.contains("[fe80::1%999999]:1"), "{error}");
}
