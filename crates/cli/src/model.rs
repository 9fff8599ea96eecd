use crate::aead::AeadArguments;
use crate::failure::Failure;
use crate::output;
use std::net::SocketAddr;
use std::path::PathBuf;
use tautline::layers::io::machine;
use tautline::{Records, ServerConfig, TlsEngine};
use tautline_replicas::models::{Baseline, Model};

/// Serve one of the models that `bench` compares: separate loops, threads that share a poller, TLS in a thread pool.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The model.
    #[arg(long)]
    model: Model,
    /// Number of loops, of threads at the poller, or of threads in the pool.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// TLS engine.
    #[arg(long, default_value_t)]
    tls: TlsEngine,
    #[command(flatten)]
    aead: AeadArguments,
    /// Answer with the number of bytes that a message asks for.
    #[arg(long)]
    source: bool,
    /// Message size from which two threads seal.
    #[arg(long, value_name = "BYTES")]
    offload_records: Option<usize>,
    /// CPU of a loop. May be repeated, for one loop each.
    #[arg(long, value_name = "N")]
    cpu: Vec<usize>,
    /// Address to listen at; loops after the first have ports of their own.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Certificate chain, PEM.
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Private key of the certificate, PEM.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// End when the process that started this one ends.
    #[arg(long)]
    with_parent: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.with_parent {
        crate::child::end_with_parent()?;
    }
    arguments.aead.apply();
    machine::raise_nofile_limit()
        .map_err(|error| Failure::failed(format!("cannot raise the limit of open files: {error}")))?;
    let certificate = crate::files::certificate(&arguments.cert, &arguments.key)?;
    let records = arguments.offload_records.map(|bytes| Records::default().with_min_message(bytes));
    let baseline = Baseline {
        model: arguments.model,
        threads: arguments.threads,
        is_source: arguments.source,
        tls: arguments.tls,
        config: ServerConfig::new([certificate]),
        records,
        cpus: arguments.cpu.clone(),
    };
    Ok(baseline.serve(arguments.listen, |addresses| {
        let uris: Vec<String> = addresses.iter().map(|address| format!("wss://{address}")).collect();
        let _ = output::print(format_args!("listening on {}\n", uris.join(" ")));
    })?)
}
