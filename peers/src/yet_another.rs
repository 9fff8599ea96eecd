//! yawc, as in its `examples/echo_server.rs`; or tuned, as the README says that its benchmarks are: larger buffers, and
//! messages that are there already answered together.
//!
//! With compression it has the level for low latency, and connections without context takeover share compressors.

use crate::common::{Failure, Hub, Stream, hub, send_to_all};
use futures_util::{FutureExt, SinkExt, StreamExt};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use yawc::{DeflatePool, Frame, OpCode, Options, UpgradeFut, WebSocket};

static HUB: Hub<Frame> = hub();

/// Most messages that the tuned server answers before it flushes.
const BATCH: usize = 32;

/// Settings of the server: those of its authors' example, or of their benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settings {
    Example,
    Tuned,
    /// The example's, and every message goes to all clients.
    Broadcast,
}

pub(crate) async fn echo(stream: impl Stream, settings: Settings, pool: Option<DeflatePool>) -> Result<(), Failure> {
    let service = service_fn(move |request| answer(request, settings, pool.clone()));
    http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await?;
    Ok(())
}

async fn answer(
    mut request: Request<Incoming>,
    settings: Settings,
    pool: Option<DeflatePool>,
) -> yawc::Result<Response<Empty<Bytes>>> {
    let mut options = Options::default().without_compression().with_limits(100 << 20, 200 << 20);
    if settings == Settings::Tuned {
        options = options.with_read_buffer_capacity(128 << 10).with_backpressure_boundary(64 << 10);
    }
    if let Some(pool) = pool {
        options = options.with_low_latency_compression().with_deflate_pool(pool);
    }
    let (response, upgraded) = WebSocket::upgrade_with_options(&mut request, options)?;
    tokio::spawn(tokio::task::unconstrained(async move {
        match settings {
            Settings::Example => messages(upgraded).await,
            Settings::Tuned => batches(upgraded).await,
            Settings::Broadcast => to_all(upgraded).await,
        }
    }));
    Ok(response)
}

async fn messages(upgraded: UpgradeFut) -> yawc::Result<()> {
    let mut socket = upgraded.await?;
    while let Some(frame) = socket.next().await {
        if matches!(frame.opcode(), OpCode::Text | OpCode::Binary) {
            socket.send(frame).await?;
        }
    }
    Ok(())
}

async fn to_all(upgraded: UpgradeFut) -> yawc::Result<()> {
    let is_data = |frame: &Frame| matches!(frame.opcode(), OpCode::Text | OpCode::Binary);
    let socket = upgraded.await?.map(Ok::<_, Infallible>);
    // A connection that fails ends alone.
    let _ = send_to_all(socket, &HUB, is_data).await;
    Ok(())
}

async fn batches(upgraded: UpgradeFut) -> yawc::Result<()> {
    let mut socket = upgraded.await?;
    while let Some(mut frame) = socket.next().await {
        for count in 1.. {
            if matches!(frame.opcode(), OpCode::Text | OpCode::Binary) {
                socket.feed(frame).await?;
            }
            if count == BATCH {
                break;
            }
            match socket.next().now_or_never() {
                Some(Some(next)) => frame = next,
                // None is there yet, or none follows: the wait above tells which.
                _ => break,
            }
        }
        socket.flush().await?;
    }
    Ok(())
}
