//! Loops of servers and clients for programs, compiled once for each engine.
//!
//! A generic loop is compiled again in every crate that starts it, and for every type of handler. The lab and `taut`
//! therefore start all their loops here or for a load, with one boxed type. A blocking `tautline::Socket`
//! has a handler of its own, so neither of them uses it. The virtual call costs less than 0.1 % of a message
//! (docs/experiments.md, "Dispatch and builds").

use tautline::{Client, Error, Handler, PreparedServer, Server, ServerHandle, TlsEngine};

/// The handler of every loop.
pub type App = Box<dyn Handler<State = ()>>;

/// Makes the handler of the loop with this number.
pub type MakeApp = Box<dyn Fn(u32) -> App + Send + Sync>;

/// Makes the handler of a client's loop.
pub type MakeOne = Box<dyn FnOnce(u32) -> App + Send>;

/// Starts a server's loops, with a probe if `stages` are to be measured.
///
/// # Errors
/// If a loop cannot start.
pub fn start_server(server: Server<TlsEngine>, stages: bool, make: MakeApp) -> Result<ServerHandle, Error> {
    if stages { server.start_with_stages(make) } else { server.start(make) }
}

/// Starts a server's loops like [`start_server`]. They wait until the server goes on.
///
/// # Errors
/// If a loop cannot start.
pub fn prepare_server(server: Server<TlsEngine>, stages: bool, make: MakeApp) -> Result<PreparedServer, Error> {
    let server = if stages { server.with_stages() } else { server };
    server.prepare(make)
}

/// Starts a client's loop, with a probe if `stages` are to be measured.
///
/// # Errors
/// If the loop cannot start.
pub fn start_client(client: Client<TlsEngine>, stages: bool, make: MakeOne) -> Result<ServerHandle, Error> {
    if stages { client.start_with_stages(make) } else { client.start(make) }
}
