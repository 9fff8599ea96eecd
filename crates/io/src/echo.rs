//! A bare echo over any driver: the limit that every layer above is measured against, and the smallest useful [`Sink`].

use crate::{Address, Compose, Driver, End, Io, KernelTls, ListenOptions, Listener, Received, Sent, Sink, Spin, Token};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tautline_window::Buf;

/// How soon a request to stop is seen.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Sends back what arrives. A connection whose peer does not read is not received from until it does.
#[derive(Debug, Default)]
pub struct Echo {
    spare: Vec<Buf>,
}

impl<D: Driver> Sink<D> for Echo {
    fn accepted(&mut self, _: &mut D, _: Token, _: Listener) {}

    fn connected(&mut self, _: &mut D, _: Token) {}

    fn received(&mut self, driver: &mut D, token: Token, data: Received<'_>) {
        let mut buf = self.spare.pop().unwrap_or_default();
        buf.put(data.bytes());
        match driver.send(token, buf) {
            Sent::Done(buf) => self.spare.push(buf),
            Sent::Pending => driver.pause_receive(token, true),
        }
    }

    fn sent(&mut self, driver: &mut D, token: Token, buf: Buf) {
        self.spare.push(buf);
        driver.pause_receive(token, false);
    }

    fn ended(&mut self, driver: &mut D, token: Token, end: End) {
        driver.close(token, matches!(end, End::Failed(_)));
    }

    fn woken(&mut self, _: &mut D) {}

    fn accept_failed(&mut self, _: &mut D, error: io::Error) {
        log::warn!("cannot accept: {error}");
    }
}

/// Listens at `address` over the driver `io`, says where through `ready`, and echoes until `stop` is set.
///
/// # Errors
/// The driver cannot be opened, it cannot listen there, or it fails.
pub fn serve(
    io: Io,
    spin: &Spin,
    address: &Address,
    ready: impl FnOnce(&Address),
    stop: &AtomicBool,
) -> io::Result<()> {
    io.choose(spin, KernelTls::Off, Serve { address, ready, stop })
}

struct Serve<'a, R> {
    address: &'a Address,
    ready: R,
    stop: &'a AtomicBool,
}

impl<R: FnOnce(&Address)> Compose for Serve<'_, R> {
    type Output = io::Result<()>;

    fn with<D: Driver>(self, open: impl Fn() -> io::Result<D> + Clone + Send + Sync + 'static) -> io::Result<()> {
        let mut driver = open()?;
        let (_, address) = driver.listen(self.address, &ListenOptions::default())?;
        (self.ready)(&address);
        let mut echo = Echo::default();
        while !self.stop.load(Ordering::Relaxed) {
            driver.turn(Some(STOP_CHECK), &mut echo)?;
        }
        Ok(())
    }
}
