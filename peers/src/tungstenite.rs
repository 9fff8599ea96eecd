//! tokio-tungstenite, as in its `examples/echo-server.rs`.

use crate::common::{Failure, Stream};
use futures_util::{StreamExt, TryStreamExt, future};

pub(crate) async fn echo(stream: impl Stream) -> Result<(), Failure> {
    let (write, read) = tokio_tungstenite::accept_async(stream).await?.split();
    read.try_filter(|message| future::ready(message.is_text() || message.is_binary())).forward(write).await?;
    Ok(())
}
