//! fastwebsockets, as in its `examples/echo_server.rs`. Over TLS too vectored writes stay on, as the library has them by
//! default: its `examples/tls_server.rs` turns them off, which costs it 3 to 12 % from 4 KiB on.

use crate::common::{Failure, Stream};
use fastwebsockets::{FragmentCollector, OpCode, WebSocketError, upgrade};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

pub(crate) async fn echo(stream: impl Stream) -> Result<(), Failure> {
    http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades().await?;
    Ok(())
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, WebSocketError> {
    let (response, upgraded) = upgrade::upgrade(&mut request)?;
    tokio::spawn(tokio::task::unconstrained(messages(upgraded)));
    Ok(response)
}

async fn messages(upgraded: upgrade::UpgradeFut) -> Result<(), WebSocketError> {
    let mut socket = FragmentCollector::new(upgraded.await?);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            _ => {}
        }
    }
}
