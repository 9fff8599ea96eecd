use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{hkdf, rand};
use tautline_tls::TicketSecret;
use zeroize::Zeroizing;

const NAME_LEN: usize = 16;

/// HKDF's salt and labels. They, the order of what follows them, and the layout of a ticket are what hosts of one fleet must
/// agree on: whoever changes one changes the version in all.
const SALT: &[u8] = b"tautline ticket secret v1";
const NAME_LABEL: &[u8] = b"tautline ticket name v1";
const KEY_LABEL: &[u8] = b"tautline ticket key v1";

/// What seals tickets for one period. AWS-LC erases its memory when it is dropped.
///
/// A ticket is name (16 bytes), nonce (12), sealed session, tag (16). The name, which the tag covers too, says at once
/// whether a key fits. AES-256-GCM-SIV (RFC 8452) bears a whole fleet drawing random nonces for one key: there is no nonce
/// to run out of, and one that comes twice says no more than whether two sessions are the same.
pub(super) struct Key {
    name: [u8; NAME_LEN],
    aead: LessSafeKey,
}

impl Key {
    /// The key of this `epoch` (by number, since 1970) of so many seconds.
    pub(super) fn derived(secret: &TicketSecret, seconds: u64, epoch: u64) -> Result<Self, Unspecified> {
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(secret.bytes());
        let (seconds, epoch) = (seconds.to_be_bytes(), epoch.to_be_bytes());
        let mut name = [0; NAME_LEN];
        prk.expand(&[NAME_LABEL, &seconds, &epoch], NameLen)?.fill(&mut name)?;
        let info = [KEY_LABEL, &seconds[..], &epoch];
        let key = UnboundKey::from(prk.expand(&info, &AES_256_GCM_SIV)?);
        Ok(Self { name, aead: LessSafeKey::new(key) })
    }

    /// A key that nobody else has.
    pub(super) fn random() -> Result<Self, Unspecified> {
        let mut bytes = Zeroizing::new([0; TicketSecret::SHORTEST]);
        rand::fill(&mut *bytes)?;
        let secret = TicketSecret::new(&*bytes).map_err(|_| Unspecified)?;
        Self::derived(&secret, 0, 0)
    }

    /// A ticket for `session`.
    pub(super) fn seal(&self, session: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = Vec::with_capacity(NAME_LEN + NONCE_LEN + session.len() + AES_256_GCM_SIV.tag_len());
        sealed.extend(self.name);
        sealed.extend(nonce);
        sealed.extend(session);
        let tag = self
            .aead
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.name),
                &mut sealed[NAME_LEN + NONCE_LEN..],
            )
            .ok()?;
        sealed.extend(tag.as_ref());
        Some(sealed)
    }

    /// The session in `ticket`, where this key sealed it.
    pub(super) fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = ticket.strip_prefix(&self.name)?.split_first_chunk::<NONCE_LEN>()?;
        let mut session = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let len = self.aead.open_in_place(nonce, Aad::from(self.name), &mut session).ok()?.len();
        session.truncate(len);
        Some(session)
    }
}

struct NameLen;

impl hkdf::KeyType for NameLen {
    fn len(&self) -> usize {
        NAME_LEN
    }
}
