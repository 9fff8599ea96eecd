//! `--admin`: metrics, health, the heaviest connections and the log level, over HTTP.

use crate::failure::Failure;
use crate::logging::LogFilter;
use tautline::{Address, Admin, Server, ServerConfig, ServerHandle, Tls, TlsEngine};
use tautline_lab::loops;

/// Serves the admin listener at this address until the program ends, and prints its address.
pub(super) fn show(handle: &ServerHandle, address: &Address, filter: LogFilter) -> Result<(), Failure> {
    let admin = Admin::new(handle).with_log_level(filter);
    let plain = Server::new(Tls { engine: TlsEngine::Plain, config: ServerConfig::default() });
    let server = Admin::prepare(plain, address)?;
    let running = loops::start_server(server, false, Box::new(move |_| Box::new(admin.clone())))?;
    Admin::restrict(address)?;
    match &running.addresses()[0] {
        Address::Tcp(address) => eprintln!("admin listener at http://{address}/"),
        other => eprintln!("admin listener at {other}"),
    }
    Ok(())
}
