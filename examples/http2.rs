//! A page and its WebSockets over one HTTP/2 connection.
//!
//! ```text
//! cargo run -p tautline --features http2 --example http2 -- CHAIN.pem KEY.pem [ADDRESS]
//! ```
//! Without HTTP/2 a page opens a connection for each WebSocket, with a handshake. Here its WebSockets are streams of the connection
//! that brought the page. For the handler each stream is a connection like any other. The body of a POST comes back.

use tautline::http::{Method, Response, header};
use tautline::{Certificate, Conn, Handler, Message, Outgoing, Reply, Request, Server, ServerConfig, http2};

const PAGE: &str = "<!doctype html><title>sockets</title><pre id=log></pre><script>
for (let number = 0; number < 20; number++) {
  const socket = new WebSocket(`wss://${location.host}/socket`);
  socket.onopen = () => socket.send(`hello ${number}`);
  socket.onmessage = (event) => { document.getElementById('log').textContent += event.data + '\\n'; };
}
</script>";

struct Site;

impl Handler for Site {
    type State = ();

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        if request.is_upgrade {
            return Reply::upgrade();
        }
        if request.http.method() == Method::POST {
            return Reply::Respond(Response::new(request.body.to_vec()));
        }
        let mut page = Response::new(PAGE.as_bytes().to_vec());
        page.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/html; charset=utf-8"));
        Reply::Respond(page)
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [chain, key, rest @ ..] = &arguments[..] else { return Err("usage: http2 CHAIN.pem KEY.pem [ADDRESS]".into()) };
    let address = rest.first().map_or("127.0.0.1:8443", String::as_str);
    let tls = ServerConfig::new([Certificate::new(std::fs::read(chain)?, std::fs::read(key)?)]);
    let server = Server::new(tls).http2(http2::Limits::default()).listen(address.parse()?).start(|_shard| Site)?;
    println!("listening on https://{}", server.addresses()[0]);
    Ok(server.join()?)
}
