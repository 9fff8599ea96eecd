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
    serve(&acceptor, &listener).await?;
    Ok(())
}

async fn serve(acceptor: &Acceptor, listener: &TcpListener) -> std::io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_dev_cert::{Authority, Leaf};
    use tautline_tokio::{ClientConfig, CloseCode, Connector, Roots, Target};

    #[tokio::test]
    async fn echoes_with_tls_and_without() {
        let authority = Authority::new("test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["127.0.0.1"])).unwrap();
        let roots = Roots::Pem(authority.certificate().into());
        let secure = Acceptor::new(&ServerConfig::new([certificate])).unwrap();
        let connector = Connector::new(&ClientConfig::default().with_roots(roots)).unwrap();
        for (acceptor, scheme) in [(Acceptor::plain(), "ws"), (secure, "wss")] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let target = Target::new(&format!("{scheme}://{}/", listener.local_addr().unwrap())).unwrap();
            let serving = tokio::spawn(async move { serve(&acceptor, &listener).await });
            let mut client = connector.connect(target).await.unwrap();
            for text in ["hello", "and again"] {
                client.text(text).await.unwrap();
                assert_eq!(client.recv().await.unwrap().unwrap().text(), Some(text));
            }
            client.close(CloseCode::NORMAL, "").await.unwrap();
            serving.abort();
        }
    }
}
