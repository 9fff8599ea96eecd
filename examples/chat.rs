//! A chat server: every path is a room, every user has a name from a slow database, and nothing blocks.
//!
//! ```text
//! cargo run -p tautline --example chat -- [ADDRESS]
//! ```
//! Open http://127.0.0.1:8080/lobby in two browser windows. `/health` and `/metrics` are for machines. The server speaks plain
//! ws, so that browsers need not trust a certificate first. With [`Tls::with_certificate`] it speaks wss.

use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tautline::http::header::{CONTENT_TYPE, COOKIE, HeaderValue};
use tautline::http::{Response, StatusCode};
use tautline::{Address, CloseCode, Closed, Conn, Handler, Message, Opening, Outgoing, Reply, Request};
use tautline::{Server, ServerHandle, SlowConsumer, Ticket, Upgrade};
use tokio::runtime::Handle;

#[derive(Clone)]
pub(crate) struct Chat {
    database: Handle,
    server: Arc<OnceLock<ServerHandle>>,
}

#[derive(Default)]
pub(crate) struct User {
    name: String,
    room: String,
}

/// Asks the database, which takes 50 ms. A user who has left meanwhile needs no answer.
async fn log_in(user: User, ticket: Ticket<User>) {
    tokio::time::sleep(Duration::from_millis(50)).await;
    let _left = match user.name.as_str() {
        "" | "mallory" => ticket.status(StatusCode::FORBIDDEN),
        _ => ticket.upgrade(Upgrade::new().with_state(user)),
    };
}

impl Handler for Chat {
    type State = User;

    fn on_request(&mut self, request: &Request<'_>) -> Reply<User> {
        let path = request.http.uri().path();
        if request.is_upgrade {
            let cookie = request.http.headers().get(COOKIE).and_then(|c| c.to_str().ok()).unwrap_or("");
            let name = cookie.split("; ").find_map(|pair| pair.strip_prefix("user=")).unwrap_or("").to_owned();
            let user = User { name, room: path.to_owned() };
            return request.later(|ticket| drop(self.database.spawn(log_in(user, ticket))));
        }
        match path {
            "/health" => page("text/plain", "fine\n"),
            "/metrics" => {
                let shards = self.server.get().map(ServerHandle::shards).unwrap_or_default();
                let open: u64 = shards.iter().map(|shard| shard.counters().open).sum();
                page("text/plain", &format!("chat_open {open}\n"))
            }
            _ => page("text/html; charset=utf-8", include_str!("chat.html")),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, User>, _opening: &Opening<'_>) {
        let room = conn.state().room.clone();
        conn.subscribe(&room);
        say(conn, "joins");
    }

    fn on_message(&mut self, conn: &mut Conn<'_, User>, message: Message<'_>) {
        match message.text() {
            // This notice does not come back to its author.
            Some("/typing") => {
                let (line, room) = (format!("{} is typing", conn.state().name), conn.state().room.clone());
                conn.publish_to_others(&room, Outgoing::text(&line));
            }
            Some(text) => say(conn, &format!("says: {text}")),
            None => {}
        }
    }

    fn on_close(&mut self, conn: &mut Conn<'_, User>, _closed: &Closed) {
        say(conn, "leaves");
    }
}

/// Publishes a line to the room. A slow reader misses the oldest lines.
fn say(conn: &mut Conn<'_, User>, what: &str) {
    let (line, room) = (format!("{} {what}", conn.state().name), conn.state().room.clone());
    conn.publish(&room, Outgoing::text(&line).with_policy(SlowConsumer::DropOldest(64 << 10)));
}

fn page(kind: &'static str, text: &str) -> Reply<User> {
    let mut response = Response::new(text.as_bytes().to_vec());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Reply::Respond(response)
}

/// The application, with its database on a runtime.
pub(crate) fn chat(database: &Handle) -> Chat {
    Chat { database: database.clone(), server: Arc::default() }
}

/// Serves on this number of threads; 0 is one for each CPU.
pub(crate) fn serve(address: Address, loops: usize, database: &Handle) -> Result<ServerHandle, tautline::Error> {
    let chat = chat(database);
    let server = chat.server.clone();
    let running = Server::plain().listen(address).shards(loops).start(move |_shard| chat.clone())?;
    Ok(server.get_or_init(|| running).clone())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into()).parse()?;
    let server = serve(address, 0, database.handle())?;
    println!("listening on http://{}/lobby; press Enter to stop", server.addresses()[0]);
    std::io::stdin().read_line(&mut String::new())?;
    server.drain(CloseCode::GOING_AWAY, "the chat closes", Duration::from_secs(5));
    Ok(server.join()?)
}
