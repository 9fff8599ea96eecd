//! An echo server on tokio, one task per connection.
//!
//! ```text
//! cargo run -p tautline-tokio --example tokio_echo -- [ADDRESS [CERTIFICATE KEY]]
//! ```
//! Without a certificate it serves `ws://`.

use tautline_tokio::{Acceptor, Certificate, Error, ServerConfig};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let (acceptor, scheme) = match (arguments.next(), arguments.next()) {
        (Some(chain), Some(key)) => {
            let certificate = Certificate::new(std::fs::read(chain)?, std::fs::read(key)?);
            (Acceptor::new(&ServerConfig::new([certificate]))?, "wss")
        }
        _ => (Acceptor::plain(), "ws"),
    };
    let listener = TcpListener::bind(address).await?;
    println!("listening on {scheme}://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept().await?;
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            if let Err(error) = echo(&acceptor, stream).await {
                eprintln!("{peer}: {error:#}");
            }
        });
    }
}

async fn echo(acceptor: &Acceptor, stream: TcpStream) -> Result<(), Error> {
    stream.set_nodelay(true)?;
    let mut socket = acceptor.accept(stream).await?;
    // All answers to the messages that arrived together leave together.
    while let Some(mut message) = socket.recv().await? {
        message.echo()?;
    }
    Ok(())
}
