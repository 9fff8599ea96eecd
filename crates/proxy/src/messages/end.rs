use super::{Excess, Messages, Party, Rate, Slow};
use crate::balance::Lease;
use crate::plan::Backend;
use crate::tally::EndMeter;
use std::net::IpAddr;
use std::sync::Arc;
use tautline::{ConnId, SlowConsumer};

/// A connection's part in a pair whose messages pass.
#[derive(Debug)]
pub struct End {
    /// The other end.
    pub(crate) partner: ConnId,
    pub(crate) rules: Rules,
    /// This side.
    pub(crate) side: Party,
    /// The policy for messages to the other end.
    pub(crate) policy: SlowConsumer,
    /// Whether this end is not read while the other one is slow.
    pub(crate) slower: Slower,
    /// Counts its messages.
    pub(crate) meter: EndMeter,
    client: Option<Client>,
}

/// The rules of a pair.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Those of its route.
    pub(crate) messages: Arc<Messages>,
    /// Longest message, which the pair keeps when those of its route change.
    pub(crate) max_size: usize,
    /// The group of its server.
    pub(crate) backend: Arc<Backend>,
}

/// The effect of a slow reader on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slower {
    /// It is not read.
    Pauses,
    /// It is read, and the policy applies.
    GoesOn,
}

/// The part that only a client's end has.
#[derive(Debug)]
struct Client {
    /// The server's place, for as long as the pair lasts.
    lease: Option<Lease>,
    source: Option<IpAddr>,
    connection: Option<Rate>,
    address: Option<Arc<Rate>>,
}

impl End {
    /// The client's end.
    pub(crate) fn of_client(
        rules: Rules,
        partner: ConnId,
        source: Option<IpAddr>,
        lease: Option<Lease>,
        meter: EndMeter,
    ) -> Box<Self> {
        let connection = rules.messages.settings.rates.connection.map(Rate::new);
        let address = rules.messages.rate_of(source);
        Box::new(Self {
            partner,
            rules,
            side: Party::Client,
            // A slow server pauses its client, which bounds what waits for it.
            policy: Slow::Pause.policy(),
            slower: Slower::Pauses,
            meter,
            client: Some(Client { lease, source, connection, address }),
        })
    }

    /// The server's end.
    pub(crate) fn of_server(rules: Rules, partner: ConnId, meter: EndMeter) -> Box<Self> {
        let slow = rules.messages.settings.slow;
        Box::new(Self {
            partner,
            rules,
            side: Party::Server,
            policy: slow.policy(),
            slower: if slow == Slow::Pause { Slower::Pauses } else { Slower::GoesOn },
            meter,
            client: None,
        })
    }

    /// Whether it has the server's place.
    pub(crate) fn has_lease(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.lease.is_some())
    }

    /// The client's address, at its end.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        self.client.as_ref()?.source
    }

    /// Takes a message of this end.
    ///
    /// # Errors
    /// The rate that it exceeds.
    pub(crate) fn take(&self, len: usize) -> Result<(), Excess> {
        if let Some(client) = &self.client {
            self.rules.messages.take(client.connection.as_ref(), client.address.as_deref())?;
        }
        self.meter.message(len);
        Ok(())
    }
}
