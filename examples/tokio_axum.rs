//! A WebSocket beside other routes of axum.
//!
//! ```text
//! cargo run -p tautline-tokio --features axum --example tokio_axum -- [ADDRESS]
//! ```

use axum::response::Response;
use axum::{Router, routing};
use tautline_tokio::axum::{Socket, WebSocketUpgrade};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let routes = Router::new().route("/", routing::get(|| async { "see /ws\n" })).route("/ws", routing::any(upgrade));
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, routes).await?;
    Ok(())
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
