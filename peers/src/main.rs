//! Echo servers on other WebSocket libraries, each written as its authors' example is, on one thread.
//!
//! `peers SERVER [--listen ADDR] [--cert FILE --key FILE] [--with-parent]` prints `listening on ws://ADDR` (`wss://` with a
//! certificate) once it accepts connections.
#![forbid(unsafe_code)]

mod arguments;
mod common;
mod fast;
mod tls;
mod tungstenite;
mod yet_another;

use arguments::{Arguments, Server};
use common::{Failure, Stream};
use std::io::Write;
use std::process::ExitCode;
use tokio::net::TcpListener;

fn main() -> ExitCode {
    let result = Arguments::parse(std::env::args_os().skip(1)).and_then(|arguments| {
        if arguments.with_parent {
            end_with_parent()?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(serve(&arguments))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::from(2)
        }
    }
}

async fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let acceptor = arguments.certificate.as_ref().map(|files| tls::acceptor(&files.0, &files.1)).transpose()?;
    let listener = TcpListener::bind(arguments.listen).await?;
    let scheme = if acceptor.is_some() { "wss" } else { "ws" };
    println!("listening on {scheme}://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let server = arguments.server;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        // A connection that fails ends alone. The load reports replies that are missing.
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => echo(server, acceptor.accept(stream).await?).await,
                None => echo(server, stream).await,
            }
        });
    }
}

async fn echo(server: Server, stream: impl Stream) -> Result<(), Failure> {
    match server {
        Server::Fastwebsockets => fast::echo(stream).await,
        Server::Yawc => yet_another::echo(stream, yet_another::Settings::Example).await,
        Server::YawcTuned => yet_another::echo(stream, yet_another::Settings::Tuned).await,
        Server::Tungstenite => tungstenite::echo(stream).await,
    }
}

/// Has the kernel end this process when its parent, which measures it, ends.
fn end_with_parent() -> Result<(), Failure> {
    let parent = rustix::process::getppid();
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    if parent.is_none() || rustix::process::getppid() != parent {
        return Err("the process that started this one is gone".into());
    }
    Ok(())
}
