use super::{Excess, Messages, Party, Rate, Slow};
use crate::balance::Lease;
use crate::tally::EndMeter;
use std::net::IpAddr;
use std::sync::Arc;
use tautline::{ConnId, SlowConsumer};

/// A connection's part in a pair whose messages pass.
#[derive(Debug)]
pub struct End {
    /// The other end.
    pub(crate) partner: ConnId,
    pub(crate) messages: Arc<Messages>,
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
    _lease: Option<Lease>,
    connection: Option<Rate>,
    address: Option<Arc<Rate>>,
}

impl End {
    /// The two ends of a pair: the client's first.
    pub(crate) fn pair(
        messages: &Arc<Messages>,
        (client, server): (ConnId, ConnId),
        source: Option<IpAddr>,
        lease: Option<Lease>,
        (client_meter, server_meter): (EndMeter, EndMeter),
    ) -> (Box<Self>, Box<Self>) {
        let settings = &messages.settings;
        let of_client = Self {
            partner: server,
            messages: messages.clone(),
            side: Party::Client,
            // A slow server pauses its client, which bounds what waits for it.
            policy: Slow::Pause.policy(),
            slower: Slower::Pauses,
            meter: client_meter,
            client: Some(Client {
                _lease: lease,
                connection: settings.rates.connection.map(Rate::new),
                address: messages.rate_of(source),
            }),
        };
        let of_server = Self {
            partner: client,
            messages: messages.clone(),
            side: Party::Server,
            policy: settings.slow.policy(),
            slower: if settings.slow == Slow::Pause { Slower::Pauses } else { Slower::GoesOn },
            meter: server_meter,
            client: None,
        };
        (Box::new(of_client), Box::new(of_server))
    }

    /// Takes a message of this end.
    ///
    /// # Errors
    /// The rate that it exceeds.
    pub(crate) fn take(&self, len: usize) -> Result<(), Excess> {
        if let Some(client) = &self.client {
            self.messages.take(client.connection.as_ref(), client.address.as_deref())?;
        }
        self.meter.message(len);
        Ok(())
    }
}
