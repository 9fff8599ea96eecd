//! `--files`: a folder beside the application.

use tautline::{Closed, Conn, Handler, Message, Opening, Reply, Request, ShardContext, StaticFiles};
use tautline_lab::loops;

/// Answers plain HTTP with files. WebSockets are the application's.
pub(super) struct Site {
    pub(super) app: loops::App,
    pub(super) files: StaticFiles,
}

impl Handler for Site {
    type State = ();

    fn on_start(&mut self, shard: &mut ShardContext<'_>) {
        self.app.on_start(shard);
    }

    fn on_request(&mut self, request: &Request<'_>) -> Reply {
        if request.is_upgrade { self.app.on_request(request) } else { self.files.reply(request) }
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

    fn on_shard_timer(&mut self, shard: &mut ShardContext<'_>, id: u64) {
        self.app.on_shard_timer(shard, id);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.app.on_close(conn, closed);
    }
}
