//! `--http2`, which needs a feature of the build and TLS.

use crate::failure::Failure;
use tautline::{Server, TlsEngine};

/// HTTP/2 of clients.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Http2Arguments {
    /// Serve HTTP/2 too, with WebSockets on its streams (RFC 8441). An upgrade of the program drains its connections.
    #[arg(long, hide = cfg!(not(feature = "http2")))]
    http2: bool,
}

impl Http2Arguments {
    /// Turns it on, as a configuration does.
    #[cfg(feature = "proxy")]
    pub(super) const fn turn_on(&mut self) {
        self.http2 = true;
    }

    /// Checks that this build and these options can do it.
    pub(super) fn check(&self, plain: bool) -> Result<(), Failure> {
        match () {
            () if !self.http2 => Ok(()),
            () if cfg!(not(feature = "http2")) => Err(Failure::usage(
                "this build has no HTTP/2, for want of the feature `http2`: build taut with `cargo build --release -p \
                 tautline-cli --features http2`, or leave out --http2 and the key http2",
            )),
            () if plain => Err(Failure::usage(
                "--http2 needs TLS, by which clients choose it (ALPN): leave out one of --http2 and --plain",
            )),
            () => Ok(()),
        }
    }

    /// Has a server speak it.
    #[cfg_attr(not(feature = "http2"), expect(clippy::unused_self, reason = "as with the feature http2"))]
    pub(super) fn apply(&self, server: Server<TlsEngine>) -> Server<TlsEngine> {
        #[cfg(feature = "http2")]
        if self.http2 {
            return server.http2(tautline::http2::Limits::default());
        }
        server
    }
}
