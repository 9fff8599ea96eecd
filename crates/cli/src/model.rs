use crate::failure::Failure;
use std::net::SocketAddr;
use std::path::PathBuf;
use tautline::layers::io::machine;
use tautline::{Records, ServerConfig, TlsEngine};
use tautline_lab::baselines::{Baseline, Model};

/// Serves as `bench` wants to compare it: loops that share nothing, threads that share a poller, TLS in a thread pool.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Who serves whom.
    #[arg(long)]
    model: Model,
    /// Loops, threads at the poller, or threads of the pool.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// TLS engine.
    #[arg(long, default_value_t)]
    tls: TlsEngine,
    /// Answer with as many bytes as a message asks for.
    #[arg(long)]
    source: bool,
    /// Have messages of at least so many bytes sealed with others' help.
    #[arg(long, value_name = "BYTES")]
    offload_records: Option<usize>,
    /// CPUs of loops, in turn.
    #[arg(long, value_name = "N")]
    cpu: Vec<usize>,
    /// Where to listen; loops after the first have ports of their own.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Certificate chain, PEM.
    #[arg(long, value_name = "FILE")]
    cert: PathBuf,
    /// Its private key, PEM.
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
    machine::raise_nofile_limit()
        .map_err(|error| Failure::failed(format!("cannot raise the limit of open files: {error}")))?;
    let certificate = crate::files::certificate(&arguments.cert, &arguments.key)?;
    let records = arguments.offload_records.map(|min_message| Records { min_message, ..Records::default() });
    let baseline = Baseline {
        model: arguments.model,
        threads: arguments.threads,
        is_source: arguments.source,
        tls: arguments.tls,
        config: ServerConfig { certificates: vec![certificate], ..ServerConfig::default() },
        records,
        cpus: arguments.cpu.clone(),
    };
    Ok(baseline.serve(arguments.listen, |addresses| {
        let uris: Vec<String> = addresses.iter().map(|address| format!("wss://{address}")).collect();
        println!("listening on {}", uris.join(" "));
    })?)
}
