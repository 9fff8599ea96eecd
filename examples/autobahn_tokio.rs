//! Both ends of the Autobahn|Testsuite on tokio: an echo server for its client, and a client for its server.
//!
//! ```text
//! cargo run -p tautline-tokio --example autobahn_tokio -- serve ADDRESS [CERTIFICATE KEY]
//! cargo run -p tautline-tokio --example autobahn_tokio -- ws://127.0.0.1:9001 [--ca FILE]
//! ```
//! The suite writes the report. The exit code of the client only says whether the connections worked.

use std::error::Error;
use tautline_tokio::{
    Acceptor, Certificate, ClientConfig, Config, Connector, DeflateConfig, Roots, ServerConfig, SlowConsumer, Target,
    WebSocket,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", address] => serve(address, Acceptor::plain()).await,
        ["serve", address, chain, key] => {
            let certificate = Certificate::new(std::fs::read(chain)?, std::fs::read(key)?);
            serve(address, Acceptor::new(&ServerConfig::new([certificate]))?).await
        }
        [url] => call(url, ClientConfig::default()).await,
        [url, "--ca", file] => call(url, ClientConfig::default().with_roots(Roots::Pem(std::fs::read(file)?))).await,
        _ => Err("usage: autobahn_tokio serve ADDRESS [CERTIFICATE KEY] | URL [--ca FILE]".into()),
    }
}

async fn serve(address: &str, acceptor: Acceptor) -> Result<(), Box<dyn Error>> {
    let acceptor = acceptor.with_config(config());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            match acceptor.accept(stream).await {
                Ok(socket) => echo(socket).await,
                Err(error) => eprintln!("{error:#}"),
            }
        });
    }
}

/// Runs every case of the suite's server.
async fn call(url: &str, tls: ClientConfig) -> Result<(), Box<dyn Error>> {
    let connector = Connector::new(&tls)?.with_config(config());
    let mut socket = connector.connect(Target::new(&format!("{url}/getCaseCount"))?).await?;
    let count: u32 = socket.recv().await?.and_then(|count| count.text()).ok_or("no number of cases")?.parse()?;
    for number in 1..=count {
        let mut target = Target::new(&format!("{url}/runCase?case={number}&agent=tautline"))?;
        target.deflate = Some(DeflateConfig::default());
        echo(connector.connect(target).await?).await;
    }
    echo(connector.connect(Target::new(&format!("{url}/updateReports?agent=tautline"))?).await?).await;
    println!("{count} cases");
    Ok(())
}

/// Echoes until the connection ends, as many cases want it to end: with an error.
async fn echo<T: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocket<T>) {
    loop {
        match socket.recv().await {
            Ok(Some(mut message)) => {
                if let Err(error) = message.echo() {
                    eprintln!("{error:#}");
                }
            }
            // Waits until the peer has read the close frame.
            Err(error) => eprintln!("{error:#}"),
            Ok(None) => return,
        }
    }
}

/// Limits for the suite, which sends messages of 16 MiB, and counts frames.
fn config() -> Config {
    let mut config = Config::default();
    config.limits.max_message = 64 << 20;
    config.slow_consumer = SlowConsumer::Disconnect(256 << 20);
    config.deadlines.ping = None;
    config.upgrade.deflate = Some(DeflateConfig::default());
    config
}
