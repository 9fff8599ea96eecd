//! A WebSocket beside other routes of axum.
//!
//! ```text
//! cargo run -p tautline-tokio --features axum --example tokio_axum -- [ADDRESS]
//! ```

use axum::response::Response;
use axum::serve::{Listener, ListenerExt};
use axum::{Router, routing};
use std::net::SocketAddr;
use tautline_tokio::axum::{Socket, WebSocketUpgrade};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(at_once(listener), routes()).await?;
    Ok(())
}

/// Has pages too leave at once. The extractor sets this for its own connections.
fn at_once(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
    listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    })
}

fn routes() -> Router {
    Router::new().route("/", routing::get(|| async { "see /ws\n" })).route("/ws", routing::any(upgrade))
}

async fn upgrade(request: WebSocketUpgrade) -> Response {
    request.on_upgrade(echo)
}

async fn echo(mut socket: Socket) {
    while let Ok(Some(mut message)) = socket.recv().await {
        if message.echo().is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline_tokio::CloseCode;

    #[tokio::test]
    async fn a_websocket_stands_beside_a_page() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("ws://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, routes()).await });
        let mut client = tautline_tokio::connect(&format!("{uri}/ws")).await.unwrap();
        client.text("hello").await.unwrap();
        assert_eq!(client.recv().await.unwrap().unwrap().text(), Some("hello"));
        client.close(CloseCode::NORMAL, "").await.unwrap();
        let page = tautline_tokio::connect(&uri).await.unwrap_err();
        assert!(page.to_string().contains("200"), "{page:#}");
        serving.abort();
    }

    /// With Nagle's algorithm the second piece of a page waits for the acknowledgement of the first, which clients delay by 40 ms.
    #[tokio::test]
    async fn connections_of_pages_send_at_once() {
        let mut listener = at_once(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let ((stream, _), _client) = tokio::join!(listener.accept(), TcpStream::connect(address));
        assert!(stream.nodelay().unwrap());
    }
}
