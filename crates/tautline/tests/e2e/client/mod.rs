//! The client: getting there, coming back, and saying why it could not.

mod connecting;
mod proxies;
mod reconnecting;
mod refused;
mod tls;

use crate::common::{App, Events};
use tautline::{Client, ClientTls, Config, Error, Running, Socket, Target};

/// A blocking client's failure to connect, in words.
fn failure(target: Target, tls: impl Into<ClientTls>, config: Config) -> String {
    match Socket::connect(target, tls, config) {
        Err(Error::Connect(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A client on a thread of its own, and what it is told.
fn start(target: Target, app: App) -> (Running, Events) {
    let events = app.events.clone();
    let client = Client::new(crate::common::server::client_config()).target(target);
    (client.start(move |_| app.clone()).unwrap(), events)
}
