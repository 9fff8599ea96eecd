use super::client::{Client, OnMessage, WAIT};
use super::make::config;
use super::server::{PATIENCE, Server};
use crate::Error;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use tautline::{Kind, Outgoing, TlsInfo};

/// A text and a binary message of each length, one pair after the other over one connection.
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
        let sent = Rc::new(RefCell::new(VecDeque::<(Kind, Rc<str>)>::new()));
        let expected = Rc::clone(&sent);
        let on_message: OnMessage = Box::new(move |_, echo| {
            let (kind, text) = expected.borrow_mut().pop_front().ok_or_else(|| wrong(echo.data().len()))?;
            let is_same = echo.kind() == kind && echo.data() == text.as_bytes();
            if is_same { Ok(()) } else { Err(wrong(text.len())) }
        });
        // Characters have two bytes at most.
        let longest = 2 * self.lengths.iter().copied().max().unwrap_or_default();
        let mut client = Client::new(self.server, config(longest, 2), None, on_message)?;
        client.open(1, &mut |_| {})?;
        let mut tls = TlsInfo::default();
        client.with(0, |conn| {
            tls = conn.tls();
            Ok(())
        })?;
        for &length in self.lengths {
            let text: String = "0123456789abcdefghijklmnopqrstuvwxyz\u{e9}".chars().cycle().take(length).collect();
            let text: Rc<str> = text.into();
            sent.borrow_mut().extend([(Kind::Text, Rc::clone(&text)), (Kind::Binary, Rc::clone(&text))]);
            client.with(0, |conn| {
                conn.send(Outgoing::text(&text));
                conn.send(Outgoing::binary(text.as_bytes()));
                Ok(())
            })?;
            client.flush();
            let end = Instant::now() + PATIENCE;
            while !sent.borrow().is_empty() {
                if Instant::now() > end {
                    let patience = PATIENCE.as_secs();
                    return Err(Error::Network(format!("{} bytes did not come back within {patience} s", text.len())));
                }
                client.turn(WAIT)?;
            }
        }
        client.close()?;
        Ok(tls)
    }
}

fn wrong(bytes: usize) -> Error {
    Error::WrongReply(format!("{bytes} bytes came back changed"))
}
