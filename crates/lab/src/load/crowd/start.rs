use super::order::Counts;
use super::running::{RunningCrowd, Thread};
use super::worker::Worker;
use crate::Error;
use crate::load::resolve::resolved;
use crate::load::server::Server;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;
use tautline::Address;
use tautline::layers::io::machine::{OwnDescriptors, raise_nofile_limit};

/// Descriptors of a table that are not connections.
const SPARE_DESCRIPTORS: u64 = 300;

/// Connections that a table of descriptors of this process has room for.
///
/// # Errors
/// The limit cannot be read or raised.
pub fn room() -> Result<usize, Error> {
    let limit = raise_nofile_limit();
    let limit = limit.map_err(|error| Error::Usage(format!("cannot read the file limit: {error}")))?;
    Ok(usize::try_from(limit.saturating_sub(SPARE_DESCRIPTORS)).unwrap_or(usize::MAX).max(1))
}

/// Loops of a server over which the kernel spreads `connections` by chance, if none may get more than `most`.
#[must_use]
pub fn loops(connections: usize, most: usize) -> usize {
    let fits = |loops: &usize| {
        let share = connections as f64 / *loops as f64;
        // Six standard deviations: fewer than one in a hundred million servers has a loop with more.
        *loops == 1 && connections <= most || *loops > 1 && share + 6.0 * share.sqrt() <= most as f64
    };
    (1..).find(|loops| fits(loops) || *loops > connections).unwrap_or(1)
}

/// A load of very many connections, before it starts.
#[derive(Clone)]
pub struct Crowd {
    /// The server.
    pub server: Server,
    /// Most connections.
    pub connections: usize,
    /// Most connections of one thread, at most [`room`] for them.
    pub per_thread: usize,
    /// Addresses that connections come from, one for each thread in turn. Empty: addresses of 127/8 if the server listens
    /// on a loopback address of IPv4, and otherwise the kernel's choice.
    pub sources: Vec<IpAddr>,
    /// The program's promise, which several threads need.
    pub own: OwnDescriptors,
}

impl Crowd {
    /// Starts the threads, without connections.
    ///
    /// # Errors
    /// A thread could not start, or the arguments make no sense.
    pub fn start(&self) -> Result<RunningCrowd, Error> {
        if self.connections == 0 || self.per_thread == 0 {
            return Err(Error::Usage("connections must be at least 1".into()));
        }
        let mut server = self.server.clone();
        server.target = resolved(&server)?;
        let (count, shared) = (self.connections.div_ceil(self.per_thread), Arc::new(Counts::default()));
        let (reporter, reports) = channel();
        let (mut threads, epoch) = (Vec::new(), Instant::now());
        for number in 0..count {
            let mut server = server.clone();
            if let Some(source) = self.source(number, &server) {
                server.driver = server.driver.with_source(source).map_err(Error::usage)?;
            }
            let (orders, received) = channel();
            let (own, counts, reporter) = ((count > 1).then_some(self.own), Arc::clone(&shared), reporter.clone());
            let work = move || Worker::run((number, server, own), (epoch, counts), &received, &reporter);
            let thread = std::thread::Builder::new().name(format!("crowd-{number}")).spawn(work);
            let thread = thread.map_err(|error| Error::Failed(format!("cannot start a thread: {error}")))?;
            threads.push(Thread { orders, thread: Some(thread) });
        }
        Ok(RunningCrowd { threads, reports, shared, open: 0 })
    }

    /// The source address of a thread's connections. One source has ports for tens of thousands of connections only.
    fn source(&self, number: usize, server: &Server) -> Option<IpAddr> {
        if !self.sources.is_empty() {
            return Some(self.sources[number % self.sources.len()]);
        }
        match server.target.address {
            Some(Address::Tcp(SocketAddr::V4(at))) if at.ip().is_loopback() => Some(loopback(number).into()),
            _ => None,
        }
    }
}

/// An address of 127/8 for a thread, other than those in common use.
fn loopback(number: usize) -> Ipv4Addr {
    let byte = |value: usize| u8::try_from(value % 250).unwrap_or(0) + 1;
    Ipv4Addr::new(127, 64, byte(number / 250), byte(number))
}

#[cfg(test)]
mod tests {
    use super::{loopback, loops};
    use std::collections::HashSet;

    #[test]
    fn loops_have_room_for_shares_by_chance() {
        assert_eq!(loops(2_000, 2_000), 1);
        let million = loops(1_000_000, 19_700);
        assert!((52..58).contains(&million), "{million}");
        assert!(loops(2_000, 700) >= 4);
        // No number of loops suffices if one connection is too many.
        assert!(loops(10, 1) > 10);
    }

    #[test]
    fn every_thread_has_a_loopback_address_of_its_own() {
        let all: HashSet<_> = (0..62_500).map(loopback).collect();
        assert!(all.len() == 62_500 && all.iter().all(|address| address.is_loopback() && address.octets()[3] > 0));
    }
}
