//! `tautline-tokio`, as in our `examples/tokio_echo.rs`.

use crate::arguments::Arguments;
use crate::common::{Failure, announce};
use tautline_tokio::{Acceptor, Certificate, Config, ServerConfig};
use tokio::net::{TcpListener, TcpStream};

/// Longest message of the measurements and checks.
const MAX_MESSAGE: usize = 64 << 20;

pub(crate) async fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let acceptor = match &arguments.certificate {
        Some((chain, key)) => {
            let certificate = Certificate::new(std::fs::read(chain)?, std::fs::read(key)?);
            Acceptor::new(&ServerConfig::new([certificate]))?
        }
        None => Acceptor::plain(),
    };
    let mut config = Config::default();
    config.limits.max_message = MAX_MESSAGE;
    let acceptor = acceptor.with_config(config);
    let listener = TcpListener::bind(arguments.listen).await?;
    announce(arguments.certificate.is_some(), &listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(echo(acceptor.clone(), stream));
    }
}

async fn echo(acceptor: Acceptor, stream: TcpStream) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let mut socket = acceptor.accept(stream).await?;
    while let Some(mut message) = socket.recv().await? {
        message.echo()?;
    }
    Ok(())
}
