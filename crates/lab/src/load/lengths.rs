use super::client::{Client, OnMessage, WAIT};
use super::make::config;
use super::server::{PATIENCE, Server};
use crate::Error;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;
use tautline::{Kind, Outgoing, TlsInfo};

/// A text and a binary message of each length, one after the other over one connection. Only one is in flight: servers that
/// cannot take two of a megabyte are known.
pub(crate) struct Lengths<'a> {
    /// The server, which echoes.
    pub(crate) server: &'a Server,
    /// Numbers of characters.
    pub(crate) lengths: &'a [usize],
}

impl Lengths<'_> {
    /// Compares all echoes with what was sent. Returns the connection's parameters of TLS.
    ///
    /// # Errors
    /// The connection failed, an echo was wrong, or none came for 5 s.
    pub(crate) fn run(&self) -> Result<TlsInfo, Error> {
        let sent = Rc::new(RefCell::new(None::<(Kind, Rc<str>)>));
        let expected = Rc::clone(&sent);
        let on_message: OnMessage = Box::new(move |_, echo| {
            let (kind, text) = expected.borrow_mut().take().ok_or_else(|| wrong(echo.data().len()))?;
            let is_same = echo.kind() == kind && echo.data() == text.as_bytes();
            if is_same { Ok(()) } else { Err(wrong(text.len())) }
        });
        // Characters have two bytes at most.
        let longest = 2 * self.lengths.iter().copied().max().unwrap_or_default();
        let mut client = Client::new(self.server, config(longest, 1), None, on_message)?;
        client.open(1, &mut |_| {})?;
        let mut tls = TlsInfo::default();
        client.with(0, |conn| {
            tls = conn.tls();
            Ok(())
        })?;
        for &length in self.lengths {
            let text: String = "0123456789abcdefghijklmnopqrstuvwxyz\u{e9}".chars().cycle().take(length).collect();
            let text: Rc<str> = text.into();
            for kind in [Kind::Text, Kind::Binary] {
                *sent.borrow_mut() = Some((kind, Rc::clone(&text)));
                client.with(0, |conn| {
                    conn.send(match kind {
                        Kind::Text => Outgoing::text(&text),
                        Kind::Binary => Outgoing::binary(text.as_bytes()),
                    });
                    Ok(())
                })?;
                client.flush();
                let end = Instant::now() + PATIENCE;
                while sent.borrow().is_some() {
                    if Instant::now() > end {
                        let (bytes, patience) = (text.len(), PATIENCE.as_secs());
                        return Err(Error::Network(format!("{bytes} bytes did not come back within {patience} s")));
                    }
                    client.turn(WAIT)?;
                }
            }
        }
        client.close()?;
        Ok(tls)
    }
}

fn wrong(bytes: usize) -> Error {
    Error::WrongReply(format!("{bytes} bytes came back changed"))
}
