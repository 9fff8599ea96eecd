use super::{Excess, Messages, Party, Rate, Slow, Way};
use crate::balance::Lease;
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
        client: ConnId,
        server: ConnId,
        source: Option<IpAddr>,
        lease: Option<Lease>,
    ) -> (Box<Self>, Box<Self>) {
        let settings = &messages.settings;
        let of_client = Self {
            partner: server,
            messages: messages.clone(),
            side: Party::Client,
            // A slow server pauses its client, which bounds what waits for it.
            policy: Slow::Pause.policy(),
            slower: Slower::Pauses,
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
            client: None,
        };
        messages.counts.add_opened();
        (Box::new(of_client), Box::new(of_server))
    }

    /// Takes a message of this end.
    ///
    /// # Errors
    /// The rate that it exceeds.
    pub(crate) fn take(&self, shard: u32, len: usize) -> Result<(), Excess> {
        let way = match &self.client {
            Some(client) => {
                self.messages.take(client.connection.as_ref(), client.address.as_deref())?;
                Way::ToServer
            }
            None => Way::ToClient,
        };
        self.messages.counts.add(shard, way, len);
        Ok(())
    }
}

/// A pair is over once its client's end is.
impl Drop for End {
    fn drop(&mut self) {
        if self.client.is_some() {
            self.messages.counts.add_ended();
        }
    }
}
