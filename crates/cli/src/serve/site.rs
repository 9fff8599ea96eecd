//! `--files`: a folder beside the application.

use tautline::http::{HeaderValue, Response, StatusCode, header};
use tautline::layers::ws::handshake::{authority, is_loopback};
use tautline::{Chunk, Closed, Conn, Handler, Message, Opening, Origins, Reply, Request, ShardContext, StaticFiles};
use tautline_hub::Hub;
use tautline_lab::loops;

/// Answers plain HTTP with files. WebSockets are the application's, and so is the HTTP interface of a hub.
pub(super) struct Site {
    pub(super) app: loops::App,
    pub(super) files: StaticFiles,
    /// Whether the application has an HTTP interface.
    pub(super) has_api: bool,
    /// The pages whose hosts may be served, on a server that only this machine reaches.
    pub(super) pages: Option<Origins>,
}

impl Site {
    /// Whether a request names a host that may be served. A foreign page whose name leads here could read the files.
    fn is_for_here(&self, request: &Request<'_>) -> bool {
        let Some(pages) = &self.pages else { return true };
        // Browsers always send a host.
        let host = authority(request.http).filter(|host| !host.is_empty());
        host.is_none_or(|host| is_loopback(host) || pages.allow_host(host))
    }
}

fn not_for_here() -> Reply {
    const WHY: &str = "this server listens on loopback, and serves localhost only (DNS rebinding); behind a proxy it needs \
                       --origin with the origin of its pages\n";
    let mut response = Response::new(WHY.as_bytes().to_vec());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Reply::Respond(response)
}

impl Handler for Site {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        self.app.on_start(shard);
    }

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        match request.is_upgrade {
            true => self.app.on_request(request),
            false if self.has_api && Hub::has_path(request.http.uri().path()) => self.app.on_request(request),
            false if self.is_for_here(request) => self.files.reply(request),
            false => not_for_here(),
        }
    }

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        self.app.on_open(conn, opening);
    }

    fn save_state(&mut self, state: &mut (), out: &mut Vec<u8>) -> bool {
        self.app.save_state(state, out)
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<()> {
        self.app.restore_state(saved)
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        self.app.on_message(conn, message);
    }

    fn on_chunk(&mut self, conn: &mut Conn<'_, ()>, chunk: Chunk<'_>) {
        self.app.on_chunk(conn, chunk);
    }

    fn on_pong(&mut self, conn: &mut Conn<'_, ()>, payload: &[u8]) {
        self.app.on_pong(conn, payload);
    }

    fn on_timer(&mut self, conn: &mut Conn<'_, ()>, id: u64) {
        self.app.on_timer(conn, id);
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, ()>) {
        self.app.on_drain(conn);
    }

    fn on_restored(&mut self, conn: &mut Conn<'_, ()>) {
        self.app.on_restored(conn);
    }

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        self.app.on_shard_timer(shard, id);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.app.on_close(conn, closed);
    }
}
