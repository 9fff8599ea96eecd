//! The outlet of a loop's connections: its driver.

use crate::offload::Seals;
use crate::turn::shared::Shared;
use tautline_buf::kernel_tls::TrafficKeys;
use tautline_buf::{Buf, Pool};
use tautline_conn::config::SlowConsumer;
use tautline_conn::cork::Means;
use tautline_conn::wire::{BATCH, Kept, Outlet, Pieces};
use tautline_io::{Driver, Sent, Token};
use tautline_tls::{Error, Session};
use tautline_ws::deflate::SharedDeflater;

/// Bytes that are sealed with helper threads at a time.
const SHARED: usize = 1 << 20;

/// The driver, and the means of the loop.
pub(crate) struct DriverOutlet<'a> {
    /// `None` once the connection has ended, so that nothing is sent.
    pub(crate) driver: Option<&'a mut dyn Driver>,
    pub(crate) token: Token,
    pub(crate) shared: &'a mut Shared,
}

impl Outlet for DriverOutlet<'_> {
    #[inline]
    fn means(&mut self) -> Means<'_> {
        self.shared.means()
    }

    #[inline]
    fn policy(&self) -> SlowConsumer {
        self.shared.config.slow_consumer
    }

    #[inline(never)]
    fn send(&mut self, sealed: Buf, last: bool) -> Option<Kept> {
        let Self { driver, token, shared } = self;
        let Some(driver) = driver else {
            shared.pool.give(sealed);
            return None;
        };
        let len = sealed.len();
        shared.counters.bytes_out.add(len as u64);
        shared.visit.spend(len);
        let sent = if let Some(sends) = &mut shared.sends
            && sends.writes(*token)
        {
            let (sent, number) = driver.send_stamped(*token, sealed);
            sends.written(*token, number);
            sent
        } else if last {
            driver.send_last(*token, sealed)
        } else {
            driver.send(*token, sealed)
        };
        match sent {
            Sent::Done(buf) => {
                // Without TLS it was the cork.
                shared.pool.give_back(buf);
                None
            }
            Sent::Pending => Some(Kept { since: shared.now, bytes: driver.unsent(*token) }),
        }
    }

    fn shutdown(&mut self) {
        if let Some(driver) = &mut self.driver {
            driver.shutdown(self.token);
        }
    }

    fn give_keys(&mut self, keys: TrafficKeys) {
        if let Some(driver) = &mut self.driver
            && let Err(error) = driver.give_keys(self.token, keys)
        {
            log::error!("cannot pass later keys to the kernel: {error}");
        }
    }

    fn pieces(&self, len: usize) -> Pieces {
        let shared = self.shared.records.as_ref().is_some_and(|pool| pool.wants(len));
        Pieces { size: if shared { SHARED } else { BATCH }, shared }
    }

    fn seal(
        &mut self,
        session: &mut dyn Session,
        plain: &[&[u8]],
        sealed: &mut Buf,
        pieces: Pieces,
    ) -> Result<(), Error> {
        let Shared { records, counters, .. } = &*self.shared;
        let seals = Seals { pool: records.as_ref().filter(|_| pieces.shared), counters };
        let driver = self.driver.as_deref();
        seals.seal(session, plain, sealed, || driver?.direct(self.token))
    }

    fn amid_pieces(&mut self, is_amid: bool) {
        self.shared.amid_pieces = is_amid;
    }

    fn shared_deflater(&mut self) -> (&mut Pool, Option<&mut SharedDeflater>) {
        (&mut self.shared.pool, Some(&mut self.shared.shared_deflater))
    }

    #[inline]
    fn count_message(&mut self) {
        self.shared.counters.messages_out.add(1);
    }

    #[cold]
    fn count_dropped(&mut self, by: Option<SlowConsumer>, number: u64) {
        let counters = &self.shared.counters;
        counters.messages_dropped.add(number);
        match by {
            Some(SlowConsumer::DropNewest(_)) => counters.dropped_newest.add(number),
            Some(SlowConsumer::DropOldest(_)) => counters.dropped_oldest.add(number),
            Some(SlowConsumer::KeepLatest(_)) => counters.dropped_latest.add(number),
            // `Disconnect` closes the connection instead.
            _ => {}
        }
    }

    fn count_compressed(&mut self) {
        self.shared.counters.publications_compressed.set(self.shared.shared_deflater.runs());
    }

    #[inline]
    fn spend(&mut self, bytes: usize) {
        self.shared.visit.spend(bytes);
    }

    #[inline]
    fn did_much(&self) -> bool {
        self.shared.visit.did_much()
    }
}
