use super::link::{BUFFER, Link, wait};
use super::maker::{Maker, Side};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;
use tautline_measure::cpu::{Pinned, Placement};
use tautline_measure::{Error, Span};

/// One connection over loopback whose ends send 32 KiB at a time and receive, both all the time.
pub struct Duplex<'a> {
    /// Makes the ends.
    pub maker: &'a Maker,
    /// Whether libraries write outside their callers' buffers.
    pub spills: bool,
    /// CPUs of both ends.
    pub placement: Placement,
    /// Length of the measurement.
    pub span: Span,
}

/// Result of [`Duplex`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuplexRates {
    /// Bytes that the server received, in 10^6 per second.
    pub read: f64,
    /// Bytes that the server sent and the client received, in 10^6 per second.
    pub written: f64,
    /// Number of seals of 32 KiB, which are two records, on both ends.
    pub sealed: u64,
}

/// Counts of one end.
struct EndRates {
    /// Bytes received per second.
    rate: f64,
    sealed: u64,
}

impl Duplex<'_> {
    /// Connects, runs and measures.
    pub fn run(&self) -> Result<DuplexRates, Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| Error::io("listen", error))?;
        let address = listener.local_addr().map_err(|error| Error::io("listen", error))?;
        let [client, server] = [self.maker.end(Side::Client)?, self.maker.end(Side::Server)?];
        let stream = TcpStream::connect(address).map_err(|error| Error::io("connect", error))?;
        let (accepted, _) = listener.accept().map_err(|error| Error::io("accept", error))?;
        let (client, server) = (Link::new(stream, client)?, Link::new(accepted, server)?);
        // Each end continues until the other has measured too.
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let _pinned = Pinned::to(self.placement.server)?;
                self.pump(server, &done)
            });
            let sent = self.pump(client, &done);
            let server = server.join().map_err(|_| Error::Failed("the server's thread panicked".to_owned()))??;
            let client = sent?;
            Ok(DuplexRates {
                read: server.rate / 1e6,
                written: client.rate / 1e6,
                sealed: server.sealed + client.sealed,
            })
        })
    }

    fn pump(&self, mut link: Link, done: &AtomicUsize) -> Result<EndRates, Error> {
        let plain: Vec<u8> = (0..=250).cycle().take(BUFFER).collect();
        let mut place = vec![0; BUFFER];
        let (mut received, mut sealed) = (0_u64, 0);
        let (mut began, mut before) = (Instant::now(), 0);
        let (mut is_warm, mut rate) = (false, None);
        while !link.is_over && done.load(Ordering::Relaxed) < 2 {
            let has_moved = link.exchange()?;
            if link.is_open {
                if sealed == 0 && self.spills {
                    link.end.spill_all();
                }
                if link.out.is_empty() {
                    link.end.seal(&plain, &mut link.out)?;
                    sealed += 1;
                }
                received += receive(&mut link, &mut place, &plain, received)?;
            }
            let elapsed = began.elapsed();
            if !is_warm && elapsed >= self.span.warmup {
                (is_warm, began, before) = (true, Instant::now(), received);
            } else if is_warm && rate.is_none() && elapsed >= self.span.duration {
                rate = Some((received - before) as f64 / elapsed.as_secs_f64().max(1e-9));
                done.fetch_add(1, Ordering::Relaxed);
            } else if !has_moved && !link.is_over {
                wait([&link].into_iter(), std::iter::empty())?;
            }
        }
        link.drop_at_once();
        let rate = rate.ok_or_else(|| Error::Failed("a connection ended before it was measured".to_owned()))?;
        Ok(EndRates { rate, sealed })
    }
}

/// Reads all whole records and returns the bytes they held. First and last byte of each are compared with those sent.
fn receive(link: &mut Link, place: &mut [u8], plain: &[u8], before: u64) -> Result<u64, Error> {
    let Link { end, inbox, out, .. } = link;
    let mut received = 0;
    loop {
        let (used, len) = end.read(inbox.filled_mut(), place, out)?;
        if used == 0 {
            return Ok(received);
        }
        inbox.take(used);
        let at = usize::try_from((before + received) % BUFFER as u64).unwrap_or_default();
        let ends = |bytes: &[u8]| bytes.first().copied().zip(bytes.last().copied());
        if plain.get(at..at + len).is_none_or(|sent| ends(sent) != ends(&place[..len])) {
            return Err(Error::WrongReply("other bytes than were sent".to_owned()));
        }
        received += len as u64;
    }
}
