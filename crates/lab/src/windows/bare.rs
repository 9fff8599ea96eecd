use super::end::{End, RECORD};
use super::maker::Side;
use crate::Error;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use tautline::layers::buf::Buf;

/// Bytes of a record's header, and bytes of the type and the tag behind its content.
const HEADER: usize = 5;
const BEHIND: usize = 1 + 16;

/// AES-128-GCM in the framing of TLS 1.3 (RFC 8446, section 5.2), with constant keys.
pub(super) struct Bare {
    sealing: LessSafeKey,
    opening: LessSafeKey,
    sealed: u64,
    opened: u64,
}

impl Bare {
    pub(super) fn new(side: Side) -> Result<Self, Error> {
        let key = |byte| match UnboundKey::new(&AES_128_GCM, &[byte; 16]) {
            Ok(key) => Ok(LessSafeKey::new(key)),
            Err(_) => Err(Error::Failed("AWS-LC rejects a key".to_owned())),
        };
        let (sealing, opening) = if side == Side::Client { (key(1)?, key(2)?) } else { (key(2)?, key(1)?) };
        Ok(Self { sealing, opening, sealed: 0, opened: 0 })
    }
}

impl End for Bare {
    fn handshake(&mut self, _wire: &mut [u8], _out: &mut Buf) -> Result<(usize, bool), Error> {
        Ok((0, true))
    }

    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        for content in plain.chunks(RECORD) {
            let len = HEADER + content.len() + BEHIND;
            let record = &mut out.reserve(len)[..len];
            let (front, body) = record.split_at_mut(HEADER);
            let header = header(body.len());
            front.copy_from_slice(&header);
            let (body, behind) = body.split_at_mut(content.len());
            let nonce = nonce(&mut self.sealed);
            self.sealing
                .seal_out_of_place_scatter(nonce, Aad::from(header), content, body, &[23], behind)
                .map_err(|_| Error::Failed("the AEAD cannot seal".to_owned()))?;
            out.commit(len);
        }
        Ok(())
    }

    fn open(&mut self, wire: &mut [u8], _out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let [_, _, _, high, low, ..] = *wire else { return Ok(0) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let Some(body) = wire.get_mut(HEADER..HEADER + len) else { return Ok(0) };
        let inner = self
            .opening
            .open_in_place(nonce(&mut self.opened), Aad::from(header(len)), body)
            .map_err(|_| Error::WrongReply("a record does not authenticate".to_owned()))?;
        take(&inner[..inner.len().saturating_sub(1)]);
        Ok(HEADER + len)
    }
}

fn header(len: usize) -> [u8; HEADER] {
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    [23, 3, 3, high, low]
}

fn nonce(sequence: &mut u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 8..].copy_from_slice(&sequence.to_be_bytes());
    *sequence += 1;
    Nonce::assume_unique_for_key(nonce)
}
