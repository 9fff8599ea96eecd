use std::error::Error;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

const USAGE: &str = "usage: peers-wtx wtx [--listen ADDR] [--cert FILE --key FILE] [--deflate] [--with-parent]";

/// An error that ends the program.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// The arguments of the command line, in the form of the other peers' program.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) listen: SocketAddr,
    /// Chain and private key, PEM; without them it serves `ws://`.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    /// Accept compression.
    pub(crate) deflate: bool,
    /// End with the process that started this one.
    pub(crate) with_parent: bool,
}

impl Arguments {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Failure> {
        let mut arguments = arguments.into_iter();
        arguments.next().filter(|name| name == "wtx").ok_or(USAGE)?;
        let (mut listen, mut cert, mut key) = (SocketAddr::from(([127, 0, 0, 1], 0)), None, None);
        let (mut deflate, mut with_parent) = (false, false);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.to_str() {
                Some("--listen") => listen = value()?.to_str().ok_or(USAGE)?.parse()?,
                Some("--cert") => cert = Some(PathBuf::from(value()?)),
                Some("--key") => key = Some(PathBuf::from(value()?)),
                Some("--deflate") => deflate = true,
                Some("--with-parent") => with_parent = true,
                _ => return Err(USAGE.into()),
            }
        }
        if cert.is_some() != key.is_some() {
            return Err(USAGE.into());
        }
        Ok(Self { listen, certificate: cert.zip(key), deflate, with_parent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, Failure> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn reads_arguments_in_the_form_of_the_other_peers() {
        let arguments = parse("wtx --listen 127.0.0.1:9 --cert c.pem --key k.pem --deflate --with-parent").unwrap();
        assert_eq!((arguments.listen.port(), arguments.deflate, arguments.with_parent), (9, true, true));
        assert_eq!(arguments.certificate, Some(("c.pem".into(), "k.pem".into())));
        for line in ["", "yawc", "wtx --cert c.pem", "wtx --listen here", "wtx further"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
