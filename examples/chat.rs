//! A chat server: every path is a room, and every room is a topic.
//!
//! ```text
//! cargo run -p tautline --example chat -- [ADDRESS]
//! ```
//! Open http://127.0.0.1:8080/lobby in two browser windows, or run `taut connect ws://127.0.0.1:8080/lobby`. The server
//! speaks plain ws, so that browsers need not trust a certificate first. With [`Tls::with_certificate`] it speaks wss;
//! nothing else changes.

use tautline::http::header::CONTENT_TYPE;
use tautline::http::{self, HeaderValue, Method, StatusCode};
use tautline::{Closed, Config, Conn, Handler, Message, Opening, Outgoing, Reply, Request, Server, SlowConsumer};

struct Chat;

impl Handler for Chat {
    /// The room: the path of the client's request.
    type State = String;

    /// Handles every HTTP request, before an upgrade.
    ///
    /// A plain GET gets the page, which then connects to its own path. This is also the place to check a cookie, and to
    /// reject with `Reply::status`.
    fn on_request(&mut self, request: &Request<'_>) -> Reply<String> {
        if request.is_upgrade {
            return Reply::upgrade();
        }
        if request.http.method() != Method::GET {
            return Reply::status(StatusCode::METHOD_NOT_ALLOWED);
        }
        let mut page = http::Response::new(PAGE.to_vec());
        page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        Reply::Respond(page)
    }

    fn on_open(&mut self, conn: &mut Conn<'_, String>, opening: &Opening<'_>) {
        let room = opening.request.map_or("/", |request| request.uri().path()).to_owned();
        conn.subscribe(&room);
        *conn.state() = room;
        say(conn, "joins");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, String>, message: Message<'_>) {
        if let Some(text) = message.text() {
            say(conn, &format!("says: {text}"));
        }
    }

    fn on_close(&mut self, conn: &mut Conn<'_, String>, _closed: &Closed) {
        say(conn, "leaves");
    }
}

/// Publishes a line to the sender's room.
///
/// The message is framed once. Each loop delivers it to its own subscribers, on whichever loop the sender is.
fn say(conn: &mut Conn<'_, String>, what: &str) {
    let (line, room) = (format!("{} {what}", conn.id()), conn.state().clone());
    conn.publish(&room, Outgoing::text(&line));
}

const PAGE: &[u8] = br#"<!doctype html><title>Chat</title><form><input autofocus placeholder="Say something"></form>
<pre></pre>
<script>
const socket = new WebSocket(location.href.replace(/^http/, "ws"));
const [form] = document.forms, out = document.querySelector("pre");
socket.onmessage = ({ data }) => out.append(data + "\n");
socket.onclose = () => out.append("closed\n");
form.onsubmit = (event) => { event.preventDefault(); socket.send(form[0].value); form.reset(); };
</script>"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into()).parse()?;
    let mut config = Config::untrusted_internet();
    // 4096 bytes are enough for a line typed by hand. A slow reader stays connected and misses the oldest messages.
    config.limits.max_message = 4096;
    config.slow_consumer = SlowConsumer::DropOldest(64 << 10);

    let server = Server::plain().config(config).listen(address).shards(0).start(|_shard| Chat)?;
    println!("listening on http://{}/lobby", server.addresses()[0]);
    Ok(server.join()?)
}
