//! Echo servers on other WebSocket libraries, each written as its authors' example is, and on our own for tokio.
//!
//! `peers SERVER [--threads N] [--listen ADDR] [--cert FILE --key FILE] [--deflate | --broadcast]
//! [--http2] [--with-parent]` prints `listening on
//! ws://ADDR` (`wss://` with a certificate) once it accepts connections. `peers feed-client URL` is a client of market data.
#![forbid(unsafe_code)]

mod arguments;
mod axum_ws;
mod common;
mod fast;
mod feed_client;
mod ours;
mod sockudo;
mod tls;
mod tungstenite;
mod yet_another;

use arguments::{Arguments, Server};
use common::{Failure, Stream, announce};
use std::process::ExitCode;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use yawc::DeflatePool;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [word, url] = &words[..]
        && word == "feed-client"
    {
        return end(feed_client::run(url));
    }
    end(Arguments::parse(std::env::args_os().skip(1)).and_then(|arguments| {
        if arguments.with_parent {
            end_with_parent()?;
        }
        let mut runtime = match arguments.threads {
            1 => Builder::new_current_thread(),
            threads => {
                let mut runtime = Builder::new_multi_thread();
                runtime.worker_threads(threads);
                runtime
            }
        };
        if matches!(arguments.server, Server::Sockudo | Server::Axum | Server::Tautline) {
            // They have deadlines; the examples of the others have none.
            runtime.enable_time();
        }
        runtime.enable_io().build()?.block_on(serve(&arguments))
    }))
}

fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::from(2)
        }
    }
}

async fn serve(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.server == Server::Tautline {
        return ours::serve(arguments).await;
    }
    let acceptor = arguments.certificate.as_ref().map(|files| tls::acceptor(&files.0, &files.1, arguments.http2));
    let acceptor = acceptor.transpose()?;
    let listener = TcpListener::bind(arguments.listen).await?;
    announce(arguments.certificate.is_some(), &listener)?;
    let (server, deflate, to_all) = (arguments.server, arguments.deflate, arguments.broadcast);
    let pool = DeflatePool::new(64);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, pool) = (acceptor.clone(), deflate.then(|| pool.clone()));
        // A connection that fails ends alone. The load reports replies that are missing.
        tokio::spawn(async move {
            match acceptor {
                Some(acceptor) => {
                    let stream = acceptor.accept(stream).await?;
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        return axum_ws::serve_http2(stream).await;
                    }
                    serve_one(server, stream, pool, to_all).await
                }
                None => serve_one(server, stream, pool, to_all).await,
            }
        });
    }
}

/// Echoes with compression if there is a `pool`, which only yawc uses. Otherwise messages may go to all clients.
async fn serve_one(
    server: Server,
    stream: impl Stream,
    pool: Option<DeflatePool>,
    to_all: bool,
) -> Result<(), Failure> {
    use yet_another::Settings;
    match server {
        Server::Fastwebsockets => fast::echo(stream).await,
        Server::Yawc if to_all => yet_another::echo(stream, Settings::Broadcast, None).await,
        Server::Yawc => yet_another::echo(stream, Settings::Example, pool).await,
        Server::YawcTuned => yet_another::echo(stream, Settings::Tuned, None).await,
        Server::Tungstenite if to_all => tungstenite::broadcast(stream).await,
        Server::Tungstenite => tungstenite::echo(stream).await,
        Server::Sockudo => sockudo::serve(stream, pool.is_some(), to_all).await,
        Server::Axum => axum_ws::serve(stream, to_all).await,
        Server::Tautline => Err("it has no TLS of another library".into()),
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
