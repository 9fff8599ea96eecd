//! Seals and opens tickets with the keys that `tautline_tls_tickets` holds.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use std::sync::Arc;
use tautline_tls::{Error, Tickets};
use tautline_tls_tickets::{Material, Renewal, Ticketer};

const HEAD: usize = Material::NAME + NONCE_LEN;

/// Seals and opens tickets.
#[derive(Debug)]
pub(crate) struct Sealer(pub(crate) Arc<Ticketer<Key>>);

/// Makes the keys; `None` if tickets are off.
pub(crate) fn ticketer(tickets: &Tickets, renewal: Renewal) -> Result<Option<Ticketer<Key>>, Error> {
    // The format's name is empty, because it was the first format.
    Ticketer::new(tickets, "", Box::new(|bytes| rand::fill(bytes).is_ok()), renewal)
}

impl ProducesTickets for Sealer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.current()?.seal(plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.0.find(|key| key.open(ticket))
    }
}

/// A key for tickets. AWS-LC erases its memory on drop.
///
/// A ticket is name (16 bytes), nonce (12), sealed session and tag (16). The tag covers the name too, which says at once
/// whether a key fits. Hosts of a fleet draw random nonces for one key. AES-256-GCM-SIV (RFC 8452) allows that: a nonce
/// that repeats reveals only whether two sessions are equal.
pub(crate) struct Key {
    name: [u8; Material::NAME],
    aead: LessSafeKey,
}

impl tautline_tls_tickets::Key for Key {
    fn new(material: &Material) -> Result<Self, Error> {
        let key = UnboundKey::new(&AES_256_GCM_SIV, &material.key()[..AES_256_GCM_SIV.key_len()]);
        let key = key.map_err(|_| Error::Library("AWS-LC: no ticket key could be made".to_owned()))?;
        Ok(Self { name: *material.name(), aead: LessSafeKey::new(key) })
    }
}

impl Key {
    /// Makes a ticket for `session`.
    fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = Vec::with_capacity(HEAD + session.len() + AES_256_GCM_SIV.tag_len());
        sealed.extend(self.name);
        sealed.extend(nonce);
        sealed.extend(session);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.aead.seal_in_place_separate_tag(nonce, Aad::from(self.name), &mut sealed[HEAD..]).ok()?;
        sealed.extend(tag.as_ref());
        Some(sealed)
    }

    /// Opens `ticket`; `None` if this key did not seal it.
    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.strip_prefix(&self.name)?.split_first_chunk::<NONCE_LEN>()?;
        let mut session = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let len = self.aead.open_in_place(nonce, Aad::from(self.name), &mut session).ok()?.len();
        session.truncate(len);
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use tautline_tls::TicketSecret;

    fn sealer(tickets: &Tickets, renewal: Renewal) -> Sealer {
        Sealer(Arc::new(ticketer(tickets, renewal).unwrap().unwrap()))
    }

    fn fleet() -> Sealer {
        sealer(&Tickets::fleet(TicketSecret::new(&[7; 32]).unwrap()), Renewal::Thread)
    }

    #[test]
    fn rejects_a_changed_or_truncated_ticket() {
        let sealer = fleet();
        let ticket = sealer.encrypt(b"session").unwrap();
        assert_eq!(ticket.len(), 16 + 12 + 7 + 16);
        assert_ne!(ticket, sealer.encrypt(b"session").unwrap());
        assert_eq!(sealer.decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        assert_eq!(fleet().decrypt(&ticket).as_deref(), Some(&b"session"[..]));
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(sealer.decrypt(&changed), None, "byte {at}");
            assert_eq!(sealer.decrypt(&ticket[..at]), None, "cut at {at}");
        }
        assert_eq!(sealer.decrypt(&[&ticket[..], &[0]].concat()), None);
    }

    #[test]
    fn servers_with_own_keys_reject_tickets_of_each_other() {
        let tickets = Tickets::Own { rotate: Duration::from_secs(60) };
        let own = || sealer(&tickets, Renewal::Caller);
        let (a, b) = (own(), own());
        let ticket = a.encrypt(b"session").unwrap();
        assert!(a.decrypt(&ticket).is_some() && b.decrypt(&ticket).is_none());
    }
}
