//! tokio-tungstenite, as in its `examples/echo-server.rs`.

use crate::common::{Failure, Hub, Stream, hub, send_to_all};
use futures_util::{StreamExt, TryStreamExt, future};
use tokio_tungstenite::tungstenite::Message;

static HUB: Hub<Message> = hub();

pub(crate) async fn echo(stream: impl Stream) -> Result<(), Failure> {
    let (write, read) = tokio_tungstenite::accept_async(stream).await?.split();
    read.try_filter(|message| future::ready(message.is_text() || message.is_binary())).forward(write).await?;
    Ok(())
}

pub(crate) async fn broadcast(stream: impl Stream) -> Result<(), Failure> {
    let socket = tokio_tungstenite::accept_async(stream).await?;
    send_to_all(socket, &HUB, |message| message.is_text() || message.is_binary()).await
}
