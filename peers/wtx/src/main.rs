//! An echo server on wtx, written as its authors' `web-socket-server` example is, on one thread.
//!
//! `peers-wtx wtx [--listen ADDR] [--cert FILE --key FILE] [--deflate]` prints `listening on ws://ADDR` (`wss://` with a
//! certificate) once it accepts connections. It ends with the process that started it if `--with-parent` is given.
//!
//! The example reads its certificate for each connection; here all share it.
#![forbid(unsafe_code)]

mod arguments;

use arguments::{Arguments, Failure};
use std::io::Write;
use std::process::ExitCode;
use tokio::net::{TcpListener, TcpStream};
use wtx::collections::Vector;
use wtx::rng::{ChaCha20, CryptoSeedableRng};
use wtx::tls::{SkCtx, TlsAcceptor, TlsConfig, TlsCtxSk};
use wtx::web_socket::web_socket_compression::ZlibRs;
use wtx::web_socket::{OpCode, WebSocketAcceptor, WebSocketPayloadOrigin, WsCompression};

/// TLS settings that all connections share.
type Shared<T> = &'static TlsConfig<T>;

fn main() -> ExitCode {
    let result = Arguments::parse(std::env::args_os().skip(1)).and_then(|arguments| {
        if arguments.with_parent {
            end_with_parent()?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(&arguments))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers-wtx: {error}");
            ExitCode::from(2)
        }
    }
}

async fn serve(arguments: &Arguments) -> Result<(), Failure> {
    let mut rng = ChaCha20::from_getrandom().map_err(failed)?;
    let tls: Option<Shared<SkCtx>> = match &arguments.certificate {
        Some((chain, key)) => {
            let (chain, key) = (std::fs::read(chain)?, std::fs::read(key)?);
            let config = TlsConfig::from_keys_pem(&chain, &mut rng, key.as_slice()).map_err(failed)?;
            Some(Box::leak(Box::new(config)))
        }
        None => None,
    };
    let plain: Shared<_> = Box::leak(Box::new(TlsConfig::plaintext()));
    let listener = TcpListener::bind(arguments.listen).await?;
    let scheme = if tls.is_some() { "wss" } else { "ws" };
    println!("listening on {scheme}://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let deflate = arguments.deflate;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let rng = ChaCha20::from_crypto_rng(&mut rng).map_err(failed)?;
        // A connection that fails ends alone. The load reports replies that are missing.
        tokio::spawn(async move {
            match (tls, deflate) {
                (Some(tls), false) => echo(TlsAcceptor::new(tls, rng, stream), ()).await,
                (Some(tls), true) => echo(TlsAcceptor::new(tls, rng, stream), ZlibRs::default()).await,
                (None, false) => echo(TlsAcceptor::new(plain, rng, stream), ()).await,
                (None, true) => echo(TlsAcceptor::new(plain, rng, stream), ZlibRs::default()).await,
            }
        });
    }
}

async fn echo<T: TlsCtxSk, C: WsCompression<false>>(
    stream: TlsAcceptor<ChaCha20, TcpStream, Shared<T>>,
    compression: C,
) -> wtx::Result<()> {
    let mut buffer = Vector::new();
    let mut socket = WebSocketAcceptor::default().set_compression(compression).accept(stream).await?;
    let (mut common, mut reader, mut writer) = socket.split_mut();
    loop {
        let mut frame = reader.read_frame(&mut buffer, &mut common, WebSocketPayloadOrigin::Adaptive).await?;
        match frame.op_code() {
            OpCode::Binary | OpCode::Text => writer.write_frame(&mut common, &mut frame).await?,
            OpCode::Close => return Ok(()),
            _ => {}
        }
    }
}

/// The library's errors have no `std::error::Error` that threads may share.
fn failed(error: wtx::Error) -> Failure {
    format!("{error:?}").into()
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
