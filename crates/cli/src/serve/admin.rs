//! `--admin`: metrics, health, the heaviest connections and the log level, over HTTP.

use super::successor::predecessor;
use crate::failure::Failure;
use crate::logging::LogFilter;
use tautline::{Address, Admin, Server, ServerConfig, ServerHandle, Tls, TlsEngine};
use tautline_lab::loops;

/// Serves the admin listener at this address until the program ends, and prints its address. If there is a predecessor, it is
/// taken over from there.
pub(super) fn show(handle: &ServerHandle, address: &Address, filter: LogFilter) -> Result<ServerHandle, Failure> {
    let admin = Admin::new(handle).with_log_level(filter);
    let plain = Server::new(Tls { engine: TlsEngine::Plain, config: ServerConfig::default() });
    let server = Admin::prepare(plain, address)?;
    let predecessor = predecessor();
    let predecessor = predecessor.map_err(|error| Failure::failed(format!("cannot take --admin over: {error}")))?;
    let server = match predecessor {
        Some(stream) => server.take_over(stream),
        None => server.listen(address.clone()),
    };
    let running = loops::start_server(server, false, Box::new(move |_| Box::new(admin.clone())))?;
    Admin::restrict(address)?;
    match &running.addresses()[0] {
        Address::Tcp(address) => eprintln!("admin listener at http://{address}/"),
        other => eprintln!("admin listener at {other}"),
    }
    Ok(running)
}
