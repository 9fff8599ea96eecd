//! Leaves the records of established connections to the kernel.

use crate::handler::Handler;
use crate::link::{Link, Phase};
use crate::probe::Probe;
use crate::shard::Core;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_io::{Driver, KernelTls};
use tautline_tls::{Engine, Session};
use tautline_window::kernel::Direction;
use tautline_ws::CloseCode;

/// What of one connection is to go to the kernel: a set, one byte for each of many connections.
#[derive(Clone, Copy, Default)]
pub(crate) struct Handover(u8);

impl Handover {
    const TRANSMIT: u8 = 1;
    const RECEIVE: u8 = 2;
    /// Receiving too, where keys can be replaced.
    const RECEIVE_IF_REKEYS: u8 = 4;
    /// The kernel transmits.
    const TRANSMITS: u8 = 8;

    pub(crate) const fn new(wanted: KernelTls) -> Self {
        Self(match wanted {
            KernelTls::Off => 0,
            KernelTls::Auto => Self::TRANSMIT | Self::RECEIVE_IF_REKEYS,
            KernelTls::Transmit => Self::TRANSMIT,
            KernelTls::Receive => Self::RECEIVE,
            KernelTls::Both => Self::TRANSMIT | Self::RECEIVE,
        })
    }

    /// Whether there is anything to do or to watch.
    pub(crate) const fn is_active(self) -> bool {
        self.0 != 0
    }

    const fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }

    const fn took(&mut self, direction: Direction, rekeys: bool) {
        match direction {
            Direction::Transmit => self.0 = self.0 & !Self::TRANSMIT | Self::TRANSMITS,
            Direction::Receive => self.0 &= !Self::RECEIVE,
        }
        if self.has(Self::RECEIVE_IF_REKEYS) {
            self.0 &= !Self::RECEIVE_IF_REKEYS;
            if rekeys {
                self.0 |= Self::RECEIVE;
            }
        }
    }
}

impl<E: Engine, H: Handler, P: Probe> Core<E, H, P> {
    /// Gives the kernel the keys of each direction that stands between two records, and has whoever used a key for too long
    /// connect again.
    pub(crate) fn enter_kernel<D: Driver>(&mut self, driver: &mut D, link: &mut Link<E::Session, H::State>) {
        if !matches!(link.phase, Phase::Request(_) | Phase::Answer(_) | Phase::Open | Phase::CloseSent) {
            return;
        }
        if link.out.kernel.has(Handover::TRANSMIT) && link.out.is_flushed() {
            give(driver, link, Direction::Transmit);
        }
        // What is carried is the beginning of a record, or held back whole ones, all still protected.
        if link.out.kernel.has(Handover::RECEIVE) && link.carry.is_empty() {
            give(driver, link, Direction::Receive);
        }
        if link.out.kernel.has(Handover::TRANSMITS)
            && matches!(link.phase, Phase::Open)
            && !link.out.is_closing()
            && link.session.is_kernel_worn_out()
        {
            log::info!("{}: its key has protected enough, and the kernel takes no other", link.info.peer);
            link.out.close(CloseCode::SERVICE_RESTART, "the connection's key is used up: connect again");
            self.shared.dirty.push(link.token);
        }
    }
}

fn give<D: Driver, S: Session, T>(driver: &mut D, link: &mut Link<S, T>, direction: Direction) {
    let Some(keys) = link.session.kernel_keys(direction) else { return };
    match driver.give_keys(link.token, keys) {
        Ok(rekeys) => {
            link.session.kernel_took(direction, rekeys);
            link.out.kernel.took(direction, rekeys);
        }
        Err(error) => {
            static TOLD: AtomicBool = AtomicBool::new(false);
            let level = if TOLD.swap(true, Ordering::Relaxed) { log::Level::Debug } else { log::Level::Warn };
            log::log!(level, "{}: records stay in user space: {error}", link.info.peer);
            link.out.kernel.0 &= Handover::TRANSMITS;
        }
    }
}

/// Gives the kernel the keys that it needs after those it has.
pub(crate) fn pass_keys<D: Driver, S: Session>(driver: &mut D, token: tautline_io::Token, session: &mut S) {
    while let Some(keys) = session.next_kernel_keys() {
        if let Err(error) = driver.give_keys(token, keys) {
            log::error!("the kernel was not given further keys: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
