use crate::sys::{Library, TicketKeys};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;
use tautline_tls::{Capabilities, Error, Tickets};

/// When a server's ticket keys move up. Whoever begins a connection after that time sees to it.
pub(crate) struct Rotation {
    pub(crate) keys: Arc<TicketKeys>,
    period: u64,
    begun: Instant,
    /// Seconds after `begun` at which the current keys' time is over.
    until: AtomicU64,
}

impl Rotation {
    /// `None` where tickets are off.
    pub(crate) fn new(library: Library, tickets: &Tickets) -> Result<Option<Self>, Error> {
        let rotate = match tickets {
            Tickets::Off => return Ok(None),
            Tickets::Own { rotate } => *rotate,
            _ => {
                let name = library.flavour().name();
                return Err(Capabilities::refusal(name, "share ticket keys among hosts", |one| one.shared_tickets));
            }
        };
        if rotate < Duration::from_secs(1) || rotate > Tickets::LONGEST {
            let most = Tickets::LONGEST.as_secs() / 3600;
            return Err(Error::Config(format!(
                "tickets: keys change after 1 second at least and {most} hours at most"
            )));
        }
        let keys = TicketKeys::new(library)
            .ok_or_else(|| Error::Library(format!("{}: no randomness for ticket keys", library.flavour().title())))?;
        let period = rotate.as_secs();
        Ok(Some(Self { keys: Arc::new(keys), period, begun: Instant::now(), until: AtomicU64::new(period) }))
    }

    /// Has the keys move up where their time is over.
    pub(crate) fn renew(&self) {
        self.renew_at(self.begun.elapsed().as_secs());
    }

    fn renew_at(&self, now: u64) {
        let until = self.until.load(Ordering::Relaxed);
        if now < until {
            return;
        }
        let periods = (now - until) / self.period + 1;
        let next = until + periods * self.period;
        if self.until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return; // another thread is at it
        }
        // After three steps none of the old keys is left.
        for _ in 0..periods.min(3) {
            if !self.keys.rotate() {
                log::error!("no new ticket key could be made; the old ones stay in use");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rotation;
    use crate::Flavour;
    use crate::sys::Library;
    use core::sync::atomic::Ordering;
    use core::time::Duration;
    use tautline_tls::{Error, TicketSecret, Tickets};

    #[test]
    fn keys_move_up_when_their_time_is_over() {
        for &flavour in Flavour::ALL {
            let library = Library::get(flavour).unwrap();
            let tickets = Tickets::Own { rotate: Duration::from_secs(10) };
            let rotation = Rotation::new(library, &tickets).unwrap().unwrap();
            for (now, until) in [(0, 10), (9, 10), (10, 20), (19, 20), (55, 60), (60, 70)] {
                rotation.renew_at(now);
                assert_eq!(rotation.until.load(Ordering::Relaxed), until, "{now}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for &flavour in Flavour::ALL {
            let library = Library::get(flavour).unwrap();
            assert!(Rotation::new(library, &Tickets::Off).unwrap().is_none());
            for bad in [Duration::ZERO, Duration::from_hours(13)] {
                assert!(matches!(Rotation::new(library, &Tickets::Own { rotate: bad }), Err(Error::Config(_))));
            }
            let fleet = Tickets::fleet(TicketSecret::new(&[7; 32]).unwrap());
            let why = Rotation::new(library, &fleet).err().unwrap().to_string();
            assert!(why.contains("take fused or rustls"), "{why}");
        }
    }
}
