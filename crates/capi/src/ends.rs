//! Ends of connections as numbers of the interface, and waits before further attempts.

use crate::codes::{
    TAUT_CAUSE_CALLBACK, TAUT_CAUSE_CUT, TAUT_CAUSE_IO, TAUT_CAUSE_LOCAL, TAUT_CAUSE_OVERLOAD, TAUT_CAUSE_PEER,
    TAUT_CAUSE_PROTOCOL, TAUT_CAUSE_REFUSED, TAUT_CAUSE_SLOW, TAUT_CAUSE_STOPPED, TAUT_CAUSE_TARGET,
    TAUT_CAUSE_TIMEOUT, TAUT_CAUSE_TLS,
};
use core::time::Duration;
use tautline::{Cause, ConnectError, Reconnect};

/// The number of a cause.
pub(crate) const fn cause(cause: &Cause) -> u32 {
    match cause {
        Cause::Peer => TAUT_CAUSE_PEER,
        Cause::Local => TAUT_CAUSE_LOCAL,
        Cause::Finished | Cause::Truncated => TAUT_CAUSE_CUT,
        Cause::Io(_) => TAUT_CAUSE_IO,
        Cause::WebSocket(_) | Cause::Http2(_) => TAUT_CAUSE_PROTOCOL,
        Cause::Tls(_) => TAUT_CAUSE_TLS,
        Cause::Timeout(_) => TAUT_CAUSE_TIMEOUT,
        Cause::SlowConsumer => TAUT_CAUSE_SLOW,
        Cause::Panicked => TAUT_CAUSE_CALLBACK,
        Cause::Stopped => TAUT_CAUSE_STOPPED,
        // Causes that are added later are reasons of this end, too.
        _ => TAUT_CAUSE_OVERLOAD,
    }
}

/// The number of the cause of a failed attempt.
pub(crate) fn cause_of_failure(error: &ConnectError) -> u32 {
    match error {
        ConnectError::Handshake(_) if error.is_permanent() => TAUT_CAUSE_TARGET,
        ConnectError::Target(_) | ConnectError::Resolve(_) => TAUT_CAUSE_TARGET,
        ConnectError::Handshake(_) | ConnectError::Proxy(_) => TAUT_CAUSE_REFUSED,
        ConnectError::Ended(ended) => cause(ended),
        _ => TAUT_CAUSE_IO,
    }
}

/// The waits, of which the longest is not zero; the first is 250 ms unless given.
pub(crate) fn reconnect([first, longest]: [u32; 2], attempts: u32) -> Option<Reconnect> {
    let [first, longest] = [first, longest].map(|wait| Duration::from_millis(wait.into()));
    let first = if first.is_zero() { Reconnect::default().first } else { first };
    let waits = Reconnect::new(first.min(longest), longest);
    let waits = if attempts == 0 { waits } else { waits.with_attempts(attempts) };
    (!longest.is_zero()).then_some(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reconnects_only_with_a_longest_wait() {
        assert_eq!(reconnect([100, 0], 3), None);
        let waits = reconnect([0, 100], 0).unwrap();
        assert_eq!((waits.first.as_millis(), waits.longest.as_millis(), waits.attempts), (100, 100, None));
        assert_eq!(reconnect([10, 1000], 3).unwrap().attempts, Some(3));
    }
}
