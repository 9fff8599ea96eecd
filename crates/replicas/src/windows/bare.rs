use super::end::{End, RECORD};
use super::maker::Side;
use tautline::layers::buf::Buf;
use tautline::layers::tls_records::Suite;
use tautline::layers::tls_records::aead::{self, Context, Direction, Provider};
use tautline_measure::Error;

/// Bytes of a record's header, and bytes of the type and the tag behind its content.
const HEADER: usize = 5;
const BEHIND: usize = 1 + 16;

const NONCE: usize = 12;

/// AES-128-GCM in the framing of TLS 1.3 (RFC 8446, section 5.2), with constant keys, by the provider of each size.
pub(super) struct Bare {
    sealing: Vec<Context>,
    opening: Vec<Context>,
    sealed: u64,
    opened: u64,
}

impl Bare {
    pub(super) fn new(side: Side) -> Result<Self, Error> {
        aead::settle();
        let key = |byte| -> Result<Vec<Context>, Error> {
            let contexts = Provider::ALL.map(|provider| Context::new(provider, Suite::Aes128Gcm, &[byte; 16]));
            contexts.into_iter().collect::<Result<_, _>>().map_err(Error::failed)
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
            let nonce = nonce(&mut self.sealed);
            let provider = aead::chosen(Suite::Aes128Gcm, content.len(), Direction::Seal);
            self.sealing[provider as usize]
                .seal(nonce, header, (content, 23), body)
                .ok_or_else(|| Error::Failed("the AEAD cannot seal".to_owned()))?;
            out.commit(len);
        }
        Ok(())
    }

    fn open(&mut self, wire: &mut [u8], _out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let [_, _, _, high, low, ..] = *wire else { return Ok(0) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        let Some(body) = wire.get_mut(HEADER..HEADER + len) else { return Ok(0) };
        let provider = aead::chosen(Suite::Aes128Gcm, len.saturating_sub(BEHIND), Direction::Open);
        let inner = self.opening[provider as usize]
            .open(nonce(&mut self.opened), header(len), body)
            .ok_or_else(|| Error::WrongReply("a record does not authenticate".to_owned()))?;
        take(&body[..inner.saturating_sub(1)]);
        Ok(HEADER + len)
    }
}

fn header(len: usize) -> [u8; HEADER] {
    let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    [23, 3, 3, high, low]
}

fn nonce(sequence: &mut u64) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    nonce[NONCE - 8..].copy_from_slice(&sequence.to_be_bytes());
    *sequence += 1;
    nonce
}
