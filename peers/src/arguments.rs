use crate::common::Failure;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

const USAGE: &str = "usage: peers fastwebsockets|yawc|yawc-tuned|tungstenite|sockudo|axum|tautline \
                     [--threads N] [--listen ADDR] [--cert FILE --key FILE] [--deflate | --broadcast] [--http2] [--with-parent]";

/// Which server to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Fastwebsockets,
    Yawc,
    YawcTuned,
    Tungstenite,
    Sockudo,
    Axum,
    Tautline,
}

/// The arguments of the command line.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) server: Server,
    pub(crate) listen: SocketAddr,
    /// Chain and private key, PEM; without them it serves `ws://`.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    /// Accept compression. Only yawc and sockudo have it.
    pub(crate) deflate: bool,
    /// Send every message to all clients. fastwebsockets, yawc-tuned and tautline do not have it.
    pub(crate) broadcast: bool,
    /// Offer HTTP/2 by ALPN, with WebSockets on its streams. Only axum has it.
    pub(crate) http2: bool,
    /// Threads of the runtime; one is its `current_thread` flavour.
    pub(crate) threads: usize,
    /// End with the process that started this one.
    pub(crate) with_parent: bool,
}

impl Arguments {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Failure> {
        let mut arguments = arguments.into_iter();
        let name = arguments.next().ok_or(USAGE)?;
        let server = match name.to_str() {
            Some("fastwebsockets") => Server::Fastwebsockets,
            Some("yawc") => Server::Yawc,
            Some("yawc-tuned") => Server::YawcTuned,
            Some("tungstenite") => Server::Tungstenite,
            Some("sockudo") => Server::Sockudo,
            Some("axum") => Server::Axum,
            Some("tautline") => Server::Tautline,
            _ => return Err(USAGE.into()),
        };
        let (mut listen, mut cert, mut key) = (SocketAddr::from(([127, 0, 0, 1], 0)), None, None);
        let (mut deflate, mut broadcast, mut http2, mut with_parent) = (false, false, false, false);
        let mut threads = 1;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.to_str() {
                Some("--threads") => threads = value()?.to_str().ok_or(USAGE)?.parse()?,
                Some("--listen") => listen = value()?.to_str().ok_or(USAGE)?.parse()?,
                Some("--cert") => cert = Some(PathBuf::from(value()?)),
                Some("--key") => key = Some(PathBuf::from(value()?)),
                Some("--deflate") => deflate = true,
                Some("--broadcast") => broadcast = true,
                Some("--http2") => http2 = true,
                Some("--with-parent") => with_parent = true,
                _ => return Err(USAGE.into()),
            }
        }
        let can_deflate = matches!(server, Server::Yawc | Server::Sockudo);
        let can_broadcast =
            matches!(server, Server::Yawc | Server::Tungstenite | Server::Sockudo | Server::Axum) && !deflate;
        let can_http2 = server == Server::Axum && cert.is_some();
        let asks_too_much = deflate && !can_deflate || broadcast && !can_broadcast || http2 && !can_http2;
        if cert.is_some() != key.is_some() || asks_too_much || threads == 0 {
            return Err(USAGE.into());
        }
        Ok(Self { server, listen, certificate: cert.zip(key), deflate, broadcast, http2, threads, with_parent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, Failure> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn arguments_are_read() {
        let arguments = parse("yawc --listen 127.0.0.1:9 --cert c.pem --key k.pem --with-parent").unwrap();
        assert_eq!((arguments.server, arguments.listen.port(), arguments.with_parent), (Server::Yawc, 9, true));
        assert_eq!(arguments.certificate, Some(("c.pem".into(), "k.pem".into())));
        let plain = parse("fastwebsockets").unwrap();
        assert_eq!((plain.listen.port(), plain.certificate, plain.with_parent), (0, None, false));
        assert!(!plain.deflate && parse("sockudo --deflate").unwrap().deflate);
        assert!(!plain.broadcast && parse("axum --broadcast").unwrap().broadcast);
        assert!(!plain.http2 && parse("axum --cert c.pem --key k.pem --http2").unwrap().http2);
        assert_eq!((plain.threads, parse("axum --threads 2").unwrap().threads), (1, 2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "unknown",
            "yawc --cert c.pem",
            "yawc --listen",
            "yawc --listen here",
            "yawc further",
            "tungstenite --deflate",
            "fastwebsockets --broadcast",
            "yawc --deflate --broadcast",
            "yawc --threads 0",
            "yawc --cert c.pem --key k.pem --http2",
            "axum --http2",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
