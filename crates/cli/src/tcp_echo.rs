use crate::driver::DriverArguments;
use crate::failure::Failure;
use crate::output;
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGUSR2};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tautline::layers::io::echo;
use tautline::{Address, DriverConfig};
use tautline_lab::limit;

/// Echo over bare TCP, with which `bench` compares servers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address to listen at; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    // `auto` is a loop written by hand for this purpose, which no driver can undercut.
    #[command(flatten)]
    driver: DriverArguments,
    /// End when the process that started this one ends.
    #[arg(long)]
    with_parent: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.with_parent {
        crate::child::end_with_parent()?;
    }
    for signal in [SIGHUP, SIGUSR1, SIGUSR2] {
        // Service managers send them, and their default action is the end. Nothing looks at the flag.
        signal_hook::flag::register(signal, Arc::default())
            .map_err(|error| Failure::failed(format!("cannot wait for signals: {error}")))?;
    }
    let failed = |error| Failure::network(format!("TCP echo at {}: {error}", arguments.listen));
    let never = AtomicBool::new(false);
    if arguments.driver.driver != "auto" {
        let driver = arguments.driver.config()?;
        if matches!(driver, DriverConfig::External(_)) {
            return Err(Failure::usage("the bare echo runs over the kernel's TCP; choose another driver"));
        }
        // The echo runs even if nobody reads.
        let ready = |address: &Address| drop(output::print(format_args!("listening on tcp://{address}\n")));
        return echo::serve(&driver.available(), &Address::Tcp(arguments.listen), ready, &never).map_err(failed);
    }
    let listener = limit::listen(arguments.listen).map_err(failed)?;
    output::print(format_args!("listening on tcp://{}\n", listener.local_addr().map_err(failed)?))?;
    limit::serve(listener, &never).map_err(failed)
}
