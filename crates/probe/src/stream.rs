//! A blocking connection with deadlines, over TCP or TLS. It keeps what explains a failure.

use super::facts::{Trouble, TroubleKind};
use rustls::{AlertDescription, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};
use tautline::layers::tls::alert::Alert;

/// A connection to the endpoint.
pub(crate) struct Stream {
    tcp: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// The first bytes of the peer, which tell what it speaks.
    pub(crate) first: Vec<u8>,
    /// TCP ended.
    ended: bool,
    /// The peer ended TLS by close_notify.
    clean: bool,
}

/// Bytes that are enough to tell protocols apart.
const FIRST: usize = 16;

impl Stream {
    pub(crate) fn plain(tcp: TcpStream) -> Self {
        // Pings are small: the answer to one must not wait for the acknowledgement of another.
        let _ = tcp.set_nodelay(true);
        Self { tcp, tls: None, first: Vec::new(), ended: false, clean: false }
    }

    /// Handshakes over the connection.
    pub(crate) fn handshake(&mut self, tls: ClientConnection, until: Instant) -> Result<(), Trouble> {
        let tls = self.tls.insert(Box::new(tls));
        let result = loop {
            if !tls.is_handshaking() {
                break flush(&mut self.tcp, tls, until);
            }
            if let Err(error) = flush(&mut self.tcp, tls, until) {
                break Err(error);
            }
            if let Err(error) = receive(&mut self.tcp, tls, &mut self.first, &mut self.ended, until) {
                // The alert tells the server why.
                let _ = flush(&mut self.tcp, tls, until);
                break Err(error);
            }
            if self.ended && tls.is_handshaking() {
                break Err(ErrorKind::UnexpectedEof.into());
            }
        };
        result.map_err(|error| self.trouble(&error))
    }

    /// The trouble behind an error of a TLS handshake.
    fn trouble(&self, error: &io::Error) -> Trouble {
        let (kind, text) = match tls_error(error) {
            Some(rustls::Error::AlertReceived(alert)) => {
                let alert = Alert((*alert).into());
                let kind = match alert {
                    Alert::CERTIFICATE_REQUIRED => TroubleKind::ClientCertificate,
                    _ => TroubleKind::Alert(alert),
                };
                (kind, format!("the server sent the alert {alert}"))
            }
            Some(rustls::Error::InvalidMessage(_)) if self.first.starts_with(b"HTTP/") => {
                (TroubleKind::PlainHttp, "the port answers a TLS handshake in plain HTTP".to_owned())
            }
            Some(rustls::Error::InvalidMessage(_)) if !matches!(self.first.first(), Some(20..=23)) => {
                let begin = String::from_utf8_lossy(&self.first).into_owned();
                (TroubleKind::NotTls, format!("the port answers in another protocol, beginning with {begin:?}"))
            }
            Some(error) => (TroubleKind::Other, error.to_string()),
            None => return io_trouble(error),
        };
        Trouble { kind, text }
    }

    /// The TLS connection, if there is one.
    pub(crate) fn tls(&mut self) -> Option<&mut ClientConnection> {
        self.tls.as_deref_mut()
    }

    pub(crate) fn write(&mut self, bytes: &[u8], until: Instant) -> io::Result<()> {
        match &mut self.tls {
            None => {
                self.tcp.set_write_timeout(Some(remaining(until)?))?;
                self.tcp.write_all(bytes)
            }
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                flush(&mut self.tcp, tls, until)
            }
        }
    }

    /// Reads some bytes; 0 at the end of the connection.
    pub(crate) fn read(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            self.tcp.set_read_timeout(Some(remaining(until)?))?;
            let n = again(|| self.tcp.read(buffer))?;
            let kept = FIRST.saturating_sub(self.first.len()).min(n);
            self.first.extend_from_slice(&buffer[..kept]);
            self.ended |= n == 0;
            return Ok(n);
        };
        loop {
            match tls.reader().read(buffer) {
                Ok(0) => {
                    self.clean = true;
                    return Ok(0);
                }
                Ok(n) => return Ok(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // TCP ended without close_notify.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                Err(error) => return Err(error),
            }
            flush(&mut self.tcp, tls, until)?;
            receive(&mut self.tcp, tls, &mut self.first, &mut self.ended, until)?;
        }
    }

    /// Ends TLS, without waiting for the peer.
    pub(crate) fn leave(mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = flush(&mut self.tcp, tls, Instant::now() + Duration::from_millis(100));
        }
    }

    /// Waits until the peer ends TLS and then TCP. Returns whether each came in time; the first is `None` without TLS.
    pub(crate) fn wait_for_end(&mut self, until: Instant) -> (Option<bool>, bool) {
        let mut rest = [0; 4096];
        while matches!(self.read(&mut rest, until), Ok(1..)) {}
        let clean = self.tls.is_some().then_some(self.clean);
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = flush(&mut self.tcp, tls, until);
        }
        // A server may wait for the client's close_notify, or for the end of its direction.
        let _ = self.tcp.shutdown(Shutdown::Write);
        while !self.ended {
            let Ok(left) = remaining(until) else { break };
            let read = self.tcp.set_read_timeout(Some(left)).and_then(|()| again(|| self.tcp.read(&mut rest)));
            match read {
                Ok(1..) => {}
                Ok(0) => self.ended = true,
                Err(error) if is_timeout(&error) => break,
                // A reset ends it, too.
                Err(_) => self.ended = true,
            }
        }
        (clean, self.ended)
    }
}

/// Time until a moment, which must not have passed.
fn remaining(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Repeats a call that was interrupted: the kernel ends waits with a timeout when a stopped process goes on.
pub(crate) fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn flush(tcp: &mut TcpStream, tls: &mut ClientConnection, until: Instant) -> io::Result<()> {
    while tls.wants_write() {
        tcp.set_write_timeout(Some(remaining(until)?))?;
        again(|| tls.write_tls(tcp))?;
    }
    Ok(())
}

/// Receives once, and opens the records.
fn receive(
    tcp: &mut TcpStream,
    tls: &mut ClientConnection,
    first: &mut Vec<u8>,
    ended: &mut bool,
    until: Instant,
) -> io::Result<()> {
    struct Kept<'a>(&'a mut TcpStream, &'a mut Vec<u8>);
    impl Read for Kept<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.0.read(buffer)?;
            let kept = FIRST.saturating_sub(self.1.len()).min(n);
            self.1.extend_from_slice(&buffer[..kept]);
            Ok(n)
        }
    }
    tcp.set_read_timeout(Some(remaining(until)?))?;
    let mut kept = Kept(tcp, first);
    *ended |= again(|| tls.read_tls(&mut kept))? == 0;
    tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    Ok(())
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// Whether an error is a deadline that passed.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// The trouble behind an error of a socket.
pub(crate) fn io_trouble(error: &io::Error) -> Trouble {
    let (kind, text) = match error.kind() {
        ErrorKind::ConnectionRefused => (TroubleKind::Refused, "connection refused".to_owned()),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => (TroubleKind::Timeout, "no answer in time".to_owned()),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
            (TroubleKind::Unreachable, error.to_string())
        }
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            (TroubleKind::Closed, "the peer closed the connection".to_owned())
        }
        _ => match tls_error(error) {
            Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
                (TroubleKind::ClientCertificate, "the server asks for a certificate of the client".to_owned())
            }
            _ => (TroubleKind::Other, error.to_string()),
        },
    };
    Trouble { kind, text }
}
