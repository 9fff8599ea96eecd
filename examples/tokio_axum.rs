//! A WebSocket beside other routes of axum.
//!
//! ```text
//! cargo run -p tautline-tokio --features axum --example tokio_axum -- [ADDRESS]
//! ```

use axum::response::Response;
use axum::serve::ListenerExt;
use axum::{Router, routing};
use tautline_tokio::axum::{Socket, WebSocketUpgrade};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Pages too leave at once. The extractor sets this for its own connections.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, routes()).await?;
    Ok(())
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
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
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
}
