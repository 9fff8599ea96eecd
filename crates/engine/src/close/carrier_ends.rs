//! The ends of connections that carry others, for the ends of these.

use crate::turn::links::Links;
use std::sync::Arc;
use tautline_conn::closed::Cause;
use tautline_conn::phase::Phase;
use tautline_io::{Driver, End, Token};

/// Why connections that carry others have ended, until those that they carried know.
#[derive(Default)]
pub(crate) struct CarrierEnds(Vec<(Token, Cause)>);

impl CarrierEnds {
    pub(crate) fn add(&mut self, carrier: Token, cause: Cause) {
        self.0.push((carrier, cause));
    }

    /// The end of a connection: of the peer's direction, or for a cause. That is the cause of the connection that carried it, if it
    /// has ended with that.
    pub(crate) fn explain<W, R>(
        &self,
        driver: &dyn Driver,
        token: Token,
        phase: &Phase<W, R>,
        end: End,
    ) -> Result<bool, Cause> {
        let error = match end {
            End::Finished => return Ok(false),
            End::Faulty(why) => return Err(Cause::Http2(why)),
            End::Failed(error) => error,
        };
        Err(match self.of(driver, token) {
            // The end of the peer's direction is missing.
            Some(Cause::Finished) if phase.is_raw() => Cause::Truncated,
            Some(cause) if phase.is_open() || phase.is_raw() => cause,
            // Nothing reaches the client of a request any more, so it gets no status.
            _ => Cause::Io(Arc::new(error)),
        })
    }

    fn of(&self, driver: &dyn Driver, carried: Token) -> Option<Cause> {
        if self.0.is_empty() {
            return None;
        }
        let by = driver.carrier(carried)?;
        self.0.iter().find(|(carrier, _)| *carrier == by).map(|(_, cause)| cause.clone())
    }

    /// A turn begins. The driver has reported the ends of all that were carried by connections that are gone.
    #[inline]
    pub(crate) fn forget<S, T>(&mut self, links: &Links<S, T>) {
        if !self.0.is_empty() {
            self.0.retain(|(carrier, _)| links.get(*carrier).is_some());
        }
    }
}
