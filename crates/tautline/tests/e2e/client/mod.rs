//! The client: connecting, reconnecting, and its errors.

mod bouncing;
mod connecting;
mod dialing;
mod names;
mod proxies;
mod reconnecting;
mod recovering;
mod refused;
mod tls;

use crate::common::{App, Events};
use tautline::{Client, ClientConfig, Config, EngineChoice, Error, ServerHandle, Socket, Target, Tls};

/// The message of a blocking client that cannot connect.
fn failure<E: EngineChoice>(target: Target, tls: impl Into<Tls<ClientConfig, E>>, config: Config) -> String {
    match Socket::connect(target, tls, config) {
        Err(Error::Connect(error)) => format!("{error:#}"),
        other => panic!("{other:?}"),
    }
}

/// A client on a thread of its own, and its events.
fn start(target: Target, app: App) -> (ServerHandle, Events) {
    let events = app.events.clone();
    let client = Client::new(crate::common::server::client_config()).target(target);
    (client.start(move |_| app).unwrap(), events)
}
