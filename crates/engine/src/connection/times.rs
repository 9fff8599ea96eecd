use crate::closed::Deadline;
use crate::config::Deadlines;
use std::time::Instant;

/// The times of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When input last arrived.
    pub(super) heard: Instant,
    /// When the last message arrived, or when the connection opened.
    pub(super) message: Instant,
    /// The end of the opening handshake, or of waiting for the peer's close frame.
    pub(super) stage_end: Option<(Instant, Deadline)>,
    /// When the peer took no more bytes, if it has taken none since.
    pub(super) stuck: Option<Instant>,
    /// Whether a ping was sent since the peer's last input.
    pub(super) ping_sent: bool,
    /// Whether input was held back, so that the peer could not be heard.
    pub(super) held_back: bool,
}

/// The action that is due at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ping,
    Miss(Deadline),
}

impl Times {
    pub(super) fn new(now: Instant, deadlines: &Deadlines) -> Self {
        let stage_end = now.checked_add(deadlines.handshake).map(|end| (end, Deadline::Handshake));
        Self { heard: now, message: now, stage_end, stuck: None, ping_sent: false, held_back: false }
    }

    /// The connection opened at `now`, or reads again: the peer has not been silent so far.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.heard, self.message) = (now, now);
        (self.ping_sent, self.held_back) = (false, false);
    }

    /// The next deadline, and the action that is then due. `hears` is whether an open connection reads input.
    pub(super) fn next(&self, hears: bool, deadlines: &Deadlines) -> Option<(Instant, Due)> {
        let mut first: Option<(Instant, Due)> = None;
        let mut consider = |at: Option<Instant>, due| {
            if let Some(at) = at
                && first.is_none_or(|(earliest, _)| at < earliest)
            {
                first = Some((at, due));
            }
        };
        // While bytes wait for the peer, it need not answer our close frame.
        if let Some((end, deadline)) = self.stage_end
            && !(deadline == Deadline::Close && self.stuck.is_some())
        {
            consider(Some(end), Due::Miss(deadline));
        }
        if hears {
            // The deadlines that count from the last input are compared before the one addition.
            let idle = deadlines.idle.map(|idle| (idle, Due::Miss(Deadline::Idle)));
            let ping = deadlines.ping.filter(|_| !self.ping_sent).map(|ping| (ping, Due::Ping));
            let quiet = match (idle, ping) {
                (Some(idle), Some(ping)) => Some(if ping.0 < idle.0 { ping } else { idle }),
                (idle, ping) => idle.or(ping),
            };
            if let Some((quiet, due)) = quiet {
                consider(self.heard.checked_add(quiet), due);
            }
            let silence = deadlines.silence.and_then(|silence| self.message.checked_add(silence));
            consider(silence, Due::Miss(Deadline::Silence));
        }
        consider(self.stuck.and_then(|since| since.checked_add(deadlines.send)), Due::Miss(Deadline::Send));
        first
    }
}
