use crate::failure::Failure;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use tautline_lab::limit;

/// Echoes over bare TCP: the limit that `bench` measures servers by.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// End when the process that started this one ends.
    #[arg(long)]
    with_parent: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.with_parent {
        crate::child::end_with_parent()?;
    }
    let failed = |error| Failure::network(format!("cannot listen at {}: {error}", arguments.listen));
    let listener = limit::listen(arguments.listen).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    println!("listening on tcp://{address}");
    limit::serve(listener, &AtomicBool::new(false)).map_err(|error| Failure::network(format!("TCP echo: {error}")))
}
