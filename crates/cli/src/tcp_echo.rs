use crate::driver::{Choice, DriverArguments};
use crate::failure::Failure;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use tautline::layers::io::echo;
use tautline::{Address, Io};
use tautline_lab::limit;

/// Echoes over bare TCP: the limit that `bench` measures servers by.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Over `auto`, the loop that is written by hand for it, which no driver can undercut; else over this driver.
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
    let failed = |error| Failure::network(format!("TCP echo at {}: {error}", arguments.listen));
    let never = AtomicBool::new(false);
    let io = over_kernel(&arguments.driver.driver)?;
    if io != Io::Auto {
        let (address, spin) = (Address::Tcp(arguments.listen), arguments.driver.spin());
        let ready = |address: &Address| println!("listening on tcp://{address}");
        return echo::serve(io, &spin, &address, ready, &never).map_err(failed);
    }
    let listener = limit::listen(arguments.listen).map_err(failed)?;
    println!("listening on tcp://{}", listener.local_addr().map_err(failed)?);
    limit::serve(listener, &never).map_err(failed)
}

fn over_kernel(choice: &Choice) -> Result<Io, Failure> {
    match choice {
        Choice::Io(io) => Ok(*io),
        #[cfg(feature = "xdp")]
        Choice::Xdp { .. } => Err(Failure::usage("the bare echo runs over the kernel's TCP; choose another driver")),
    }
}
