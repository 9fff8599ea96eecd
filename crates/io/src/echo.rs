//! A bare echo over any driver: the limit that every layer above is measured against, and the smallest useful [`Sink`].

use crate::{Address, Driver, DriverConfig, End, ListenOptions, Listener, Received, Sent, Sink, Token};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tautline_buf::Buf;

/// How soon a request to stop is seen.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Sends back what arrives. A connection whose peer does not read is not received from until it does.
#[derive(Debug, Default)]
pub struct Echo {
    spare: Vec<Buf>,
}

impl Sink for Echo {
    fn accepted(&mut self, _: &mut dyn Driver, _: Token, _: Listener) {}

    fn connected(&mut self, _: &mut dyn Driver, _: Token) {}

    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>) {
        let mut buf = self.spare.pop().unwrap_or_default();
        buf.put(data.bytes());
        match driver.send(token, buf) {
            Sent::Done(buf) => self.spare.push(buf),
            Sent::Pending => driver.pause_receive(token, true),
        }
    }

    fn sent(&mut self, driver: &mut dyn Driver, token: Token, buf: Buf) {
        self.spare.push(buf);
        driver.pause_receive(token, false);
    }

    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End) {
        driver.close(token, matches!(end, End::Failed(_)));
    }

    fn woken(&mut self, _: &mut dyn Driver) {}

    fn accept_failed(&mut self, _: &mut dyn Driver, error: io::Error) {
        log::warn!("cannot accept: {error}");
    }
}

/// Listens at `address`, reports the address it got through `ready`, and echoes until `stop` is set.
///
/// # Errors
/// The driver cannot be opened, it cannot listen there, or it fails.
pub fn serve(
    driver: &DriverConfig,
    address: &Address,
    ready: impl FnOnce(&Address),
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut driver = driver.open()?;
    let (_, address) = driver.listen(address, &ListenOptions::default())?;
    ready(&address);
    let mut echo = Echo::default();
    while !stop.load(Ordering::Relaxed) {
        driver.turn(Some(STOP_CHECK), &mut echo)?;
    }
    Ok(())
}
