//! Hands the records of established connections to the kernel.

use crate::link::kernel_tls::Handover;
use crate::link::phase::Phase;
use crate::link::state::Link;
use crate::turn::shared::Shared;
use std::sync::atomic::{AtomicBool, Ordering};
use tautline_buf::kernel_tls::Direction;
use tautline_io::Driver;
use tautline_tls::Session;
use tautline_ws::CloseCode;

impl<S: Session, T> Link<S, T> {
    /// Gives the kernel the keys of each direction that is between two records, and closes a connection whose key is used up.
    pub(crate) fn enter_kernel(&mut self, driver: &mut dyn Driver, shared: &mut Shared) {
        if !(matches!(self.phase, Phase::Request(_) | Phase::Answer(_)) || self.phase.is_open()) {
            return;
        }
        if self.kernel.has(Handover::TRANSMIT) && self.wire.is_flushed() {
            give(driver, self, Direction::Transmit);
        }
        // Carried bytes are still protected: a partial record, or whole records that are held back.
        if self.kernel.has(Handover::RECEIVE) && self.carry.is_empty() {
            give(driver, self, Direction::Receive);
        }
        if self.kernel.has(Handover::TRANSMITS) && self.phase.takes_messages() && self.session.is_kernel_worn_out() {
            log::info!("{}: closing: its TLS key is used up, and the kernel takes no other", self.info.peer);
            self.close(CloseCode::SERVICE_RESTART, "the connection's key is used up: connect again");
            shared.dirty.push(self.token);
        }
    }
}

fn give<S: Session, T>(driver: &mut dyn Driver, link: &mut Link<S, T>, direction: Direction) {
    let Some(keys) = link.session.kernel_keys(direction) else { return };
    match driver.give_keys(link.token, keys) {
        Ok(rekeys) => {
            link.session.kernel_took(direction, rekeys);
            link.kernel.took(direction, rekeys);
        }
        Err(error) => {
            static WARNED: AtomicBool = AtomicBool::new(false);
            let level = if WARNED.swap(true, Ordering::Relaxed) { log::Level::Debug } else { log::Level::Warn };
            log::log!(level, "{}: records stay in user space: {error}", link.info.peer);
            link.kernel.refused();
        }
    }
}

#[cfg(test)]
mod tests;
