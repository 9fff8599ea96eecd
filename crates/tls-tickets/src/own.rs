//! The material of a server's own keys, and its way to another process.
//!
//! Bytes begin with a version. Integers are big-endian. The length of the format's name (1) and the name follow, then the first
//! second of the period and the first one after it (8 each). The rest is two or three keys: the current, the next and the
//! previous one. Each is its name (16) and its secret (64).

use crate::material::Material;
use core::ops::Range;
use std::sync::Arc;
use tautline_tls::{Error, Tickets};

/// The version of the bytes.
const VERSION: u8 = 1;

/// The material of a server's own keys.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) current: Arc<Material>,
    pub(crate) next: Arc<Material>,
    pub(crate) previous: Option<Arc<Material>>,
}

impl Own {
    pub(crate) fn new(current: Material, next: Material) -> Self {
        Self { current: Arc::new(current), next: Arc::new(next), previous: None }
    }

    /// The material of the period that follows.
    pub(crate) fn successor(&self, next: Material) -> Self {
        let (current, previous) = (Arc::clone(&self.next), Some(Arc::clone(&self.current)));
        Self { current, next: Arc::new(next), previous }
    }

    /// Appends the material of keys for tickets of this format, which are in use during `time`.
    pub(crate) fn encode(&self, format: &str, time: Range<u64>, out: &mut Vec<u8>) {
        // Formats have short names. Another process would refuse a longer one.
        out.extend([VERSION, u8::try_from(format.len()).unwrap_or(u8::MAX)]);
        out.extend(format.as_bytes());
        out.extend(time.start.to_be_bytes());
        out.extend(time.end.to_be_bytes());
        for material in [&self.current, &self.next].into_iter().chain(&self.previous) {
            out.extend(material.name());
            out.extend(material.key());
        }
    }

    /// Reads material that [`encode`](Self::encode) wrote, and the time in which it is in use.
    pub(crate) fn decode(format: &str, bytes: &[u8]) -> Result<(Self, Range<u64>), Error> {
        let error = Error::ApiMisuse("the bytes are no ticket keys of this engine, or of a later version");
        Self::read(format, bytes).ok_or(error)
    }

    fn read(format: &str, bytes: &[u8]) -> Option<(Self, Range<u64>)> {
        let ([VERSION, len], rest) = bytes.split_first_chunk()? else { return None };
        let (name, rest) = rest.split_at_checked(usize::from(*len))?;
        let (start, rest) = rest.split_first_chunk()?;
        let (end, rest) = rest.split_first_chunk()?;
        let time = u64::from_be_bytes(*start)..u64::from_be_bytes(*end);
        let period = time.end.checked_sub(time.start)?;
        let is_time = (1..=Tickets::LONGEST.as_secs()).contains(&period) && time.end < u64::MAX / 2;
        let mut rest = (is_time && name == format.as_bytes()).then_some(rest)?;
        let mut keys = Vec::new();
        while !rest.is_empty() {
            let (name, behind) = rest.split_first_chunk()?;
            let (key, behind) = behind.split_first_chunk()?;
            keys.push(Arc::new(Material::of(name, key)));
            rest = behind;
        }
        let mut keys = keys.into_iter();
        let own = Self { current: keys.next()?, next: keys.next()?, previous: keys.next() };
        keys.next().is_none().then_some((own, time))
    }
}
