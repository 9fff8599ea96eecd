use crate::deflate::SharedDeflater;
use crate::{Error, Header, Kind};
use core::any::Any;
use core::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use tautline_buf::Pool;

/// A server's message, framed once and sent to many clients.
///
/// It is compressed once for each window size that clients allow. Clones share the bytes, also across threads.
///
/// The compressed form refers to no earlier message. Any connection with permessage-deflate and a window of at least
/// its size can therefore receive it ([`Encoder::prepared`](crate::Encoder::prepared)).
#[derive(Clone)]
pub struct Prepared(Arc<Frames>);

struct Frames {
    plain: Box<[u8]>,
    /// The compressed frame by window size; `None` if compressing does not make it smaller.
    ///
    /// Two threads may both compress a message. That is cheaper than letting one wait for the other.
    compressed: [OnceLock<Option<Box<[u8]>>>; SharedDeflater::WINDOWS],
    /// The holders' common thing; see [`Prepared::common`].
    common: Mutex<Weak<dyn Any + Send + Sync>>,
}

impl Prepared {
    /// Frames a message. The caller must ensure that text is UTF-8.
    ///
    /// # Panics
    /// If there is no memory for it.
    #[must_use]
    pub fn new(kind: Kind, payload: &[u8]) -> Self {
        let common: Weak<dyn Any + Send + Sync> = Weak::<()>::new();
        Self(Arc::new(Frames {
            plain: frame(kind, payload, false),
            compressed: Default::default(),
            common: Mutex::new(common),
        }))
    }

    /// A thing that holders of the message have in common, such as the account of its bytes. `make` makes one unless a holder has
    /// one of the same type still.
    pub fn common<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut common = self.0.common.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(thing)) = common.upgrade().map(Arc::downcast) {
            return thing;
        }
        let thing = Arc::new(make());
        let weak = Arc::downgrade(&thing);
        *common = weak;
        thing
    }

    /// The uncompressed frame.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        &self.0.plain
    }

    /// The frame compressed for a window of `window_bits`.
    ///
    /// It is uncompressed if zlib has no such window, or if compression does not make it smaller.
    ///
    /// # Errors
    /// [`Error::Compressor`] if the compressor fails.
    ///
    /// # Panics
    /// If there is no memory for it. The message and the compressor can be used again.
    pub fn compressed(
        &self,
        window_bits: u8,
        shared_deflater: &mut SharedDeflater,
        pool: &mut Pool,
    ) -> Result<&[u8], Error> {
        let Some(slot) = SharedDeflater::slot(window_bits) else { return Ok(self.frame()) };
        let cell = &self.0.compressed[slot];
        if cell.get().is_none() {
            let mut deflated = pool.take();
            let result = shared_deflater.deflate(window_bits, self.payload(), &mut deflated);
            if result.is_ok() {
                let is_smaller = deflated.len() < self.payload().len();
                // If another thread was faster, its result stays.
                let _ = cell.set(is_smaller.then(|| frame(self.kind(), deflated.filled(), true)));
            }
            pool.give(deflated);
            result?;
        }
        Ok(cell.get().and_then(Option::as_deref).unwrap_or_else(|| self.frame()))
    }

    /// Text or binary.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if self.0.plain[0] & 0x0f == 1 { Kind::Text } else { Kind::Binary }
    }

    /// The uncompressed payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.0.plain[Header::len_of(self.0.plain[1])..]
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("kind", &self.kind()).field("len", &self.payload().len()).finish()
    }
}

/// Frames a payload, in memory of just its size. A lack of it panics, as with buffers, instead of aborting the process.
fn frame(kind: Kind, payload: &[u8], rsv1: bool) -> Box<[u8]> {
    let mut head = [0; Header::MAX_LEN];
    let header = Header { fin: true, rsv1, opcode: kind.into(), key: None, len: payload.len() as u64 };
    let start = header.encode_to(&mut head);
    let len = start + payload.len();
    let mut frame = Vec::new();
    assert!(frame.try_reserve_exact(len).is_ok(), "no memory for a frame of {len} bytes");
    frame.extend_from_slice(&head[..start]);
    frame.extend_from_slice(payload);
    frame.into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::Prepared;
    use crate::{Header, Kind};

    #[test]
    fn holders_have_a_thing_in_common_for_as_long_as_one_has_it() {
        let prepared = Prepared::new(Kind::Text, b"x");
        let (other, first) = (prepared.clone(), prepared.common(|| 1_u8));
        assert_eq!(*other.common(|| 2_u8), 1);
        drop(first);
        assert_eq!(*prepared.common(|| 3_u8), 3);
        assert_eq!(*prepared.common(|| "another"), "another");
    }

    #[test]
    fn keeps_kind_and_payload_for_every_length_form() {
        for len in [0, 125, 126, 65_535, 65_536] {
            let payload = vec![b'x'; len];
            for kind in [Kind::Text, Kind::Binary] {
                let prepared = Prepared::new(kind, &payload);
                assert_eq!((prepared.kind(), prepared.payload()), (kind, &payload[..]));
                assert_eq!(prepared.frame().len(), Header::len_of(prepared.frame()[1]) + len);
            }
        }
    }
}
