//! All connections of a shard by their slots, and the state of its turns.

use crate::close::draining::Draining;
use crate::handler::Handler;
use crate::moving::restored::Moving;
use crate::threads::remote::Commands;
use crate::topics::joining::Joined;
use crate::turn::core::Core;
use crate::turn::slow::SlowTurns;
use crate::turn::stall::Stall;
use tautline_io::Token;
use tautline_tls::Engine;

/// A shard without its driver, which calls it back as a [`Sink`](tautline_io::Sink).
///
/// It takes a connection out of its slot, and has the [`Core`] serve it.
pub(crate) struct Reactor<E: Engine, H: Handler> {
    pub(crate) core: Core<E, H>,
    pub(crate) due: Vec<Token>,
    pub(crate) commands: Commands,
    /// Whether commands may wait although no wake will be reported for them.
    pub(crate) commands_left: bool,
    /// The part of a drain that is left.
    pub(crate) draining: Option<Draining>,
    /// Memory for the subscribers to whom messages are being sent.
    pub(crate) walk: Vec<Token>,
    /// The messages that are being sent, for connections that join texts.
    pub(crate) joined: Joined,
    /// Whether the application knows that the shard has begun.
    pub(crate) is_started: bool,
    /// The slots that a walk over all connections has still to serve, from the last of them to the first.
    pub(crate) unserved: usize,
    pub(crate) slow_turns: SlowTurns,
    pub(crate) stall: Stall,
    pub(crate) moving: Moving<E::Session, H::State>,
}
