//! fastwebsockets, as in its `examples/echo_server.rs` and `examples/tls_server.rs`.

use crate::{Failure, Stream};
use fastwebsockets::{FragmentCollector, OpCode, WebSocketError, upgrade};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

pub(crate) async fn echo(stream: impl Stream, is_tls: bool) -> Result<(), Failure> {
    let service = service_fn(move |request| answer(request, is_tls));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    Ok(())
}

async fn answer(mut request: Request<Incoming>, is_tls: bool) -> Result<Response<Empty<Bytes>>, WebSocketError> {
    let (response, upgraded) = upgrade::upgrade(&mut request)?;
    tokio::spawn(tokio::task::unconstrained(messages(upgraded, is_tls)));
    Ok(response)
}

async fn messages(upgraded: upgrade::UpgradeFut, is_tls: bool) -> Result<(), WebSocketError> {
    let mut socket = upgraded.await?;
    // The example with TLS turns vectored writes off, the one without leaves them on.
    socket.set_writev(!is_tls);
    let mut socket = FragmentCollector::new(socket);
    loop {
        let frame = socket.read_frame().await?;
        match frame.opcode {
            OpCode::Close => return Ok(()),
            OpCode::Text | OpCode::Binary => socket.write_frame(frame).await?,
            _ => {}
        }
    }
}
