use super::event::Event;
use super::input::Step;
use super::output::Phase;
use super::state::{Client, Connection};
use http::HeaderMap;
use tautline_conn::closed::ConnectError;
use tautline_conn::front::{Front, REFUSED, Via};
use tautline_conn::proxy_header::ProxyHeader;
use tautline_conn::verdict::Stop;
use tautline_tls::Session;

impl<S: Session> Connection<S> {
    /// The peer may not connect.
    pub(super) fn refuse_peer(&mut self) {
        self.output.abort();
        self.output.phase = Phase::GONE;
        self.pending = Some(Event::Failed(Box::new(ConnectError::Proxy(REFUSED.to_owned()))));
    }

    /// Reads the header of the PROXY protocol. TLS or HTTP follows.
    pub(super) fn read_proxy_header(&mut self) -> Result<Step, Stop> {
        let read = ProxyHeader::read(self.input.wire.filled());
        let Some((header, len)) = read.map_err(|error| Stop::Proxy(format!("the proxy sent {error}")))? else {
            return Ok(Step::Wait);
        };
        self.input.wire.take(len);
        self.output.phase = if self.output.session.is_plain() { Self::first_request(&self.config) } else { Phase::Tls };
        if let (Some(client), Some(named)) = (&mut self.client, header.client().cloned()) {
            let direct = std::mem::replace(&mut client.peer, named);
            client.via = Some(Via::new(direct, Some(header)));
        }
        Ok(Step::Again)
    }
}

impl Client {
    /// The head of a request is whole, whose peer may name the client.
    pub(super) fn note_forwarded(&mut self, front: &Front, headers: &HeaderMap) {
        if front.forwarded_from.is_empty() {
            return;
        }
        let client = front.client(headers, self.via.as_ref().map_or(&self.peer, Via::base));
        if client != self.peer {
            let direct = std::mem::replace(&mut self.peer, client);
            self.via.get_or_insert_with(|| Via::new(direct, None));
        }
    }
}
