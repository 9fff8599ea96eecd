use super::aws_lc;
use super::provider::{Aead, Provider};
#[cfg(feature = "ring")]
use super::ring;
use crate::schedule::{IV, Suite};
use tautline_tls::Error;
use tautline_tls::record::HEADER;

/// The AEAD of a suite with one key, by one provider.
///
/// The record path uses it. Programs need it only to measure a provider alone.
///
/// Its methods are always inlined: a further call would pass nonce and header once more for each record.
pub struct Context(Inner);

enum Inner {
    AwsLc(aws_lc::Context),
    #[cfg(feature = "ring")]
    Ring(ring::Context),
}

/// Calls a method of the provider's context.
macro_rules! dispatch {
    ($context:expr, $one:ident => $call:expr) => {
        match &$context.0 {
            Inner::AwsLc($one) => $call,
            #[cfg(feature = "ring")]
            Inner::Ring($one) => $call,
        }
    };
}

impl Context {
    /// Expands a key, which takes 0.1 us with AWS-LC, and a box and two wipes more with ring.
    ///
    /// # Errors
    /// [`Error::Library`] if the key's length is not the suite's.
    pub fn new(provider: Provider, suite: Suite, key: &[u8]) -> Result<Self, Error> {
        let inner = match provider {
            Provider::AwsLc => aws_lc::Context::new(suite, key).map(Inner::AwsLc),
            #[cfg(feature = "ring")]
            Provider::Ring => ring::Context::new(suite, key).map(Inner::Ring),
        };
        inner.map(Self).ok_or_else(|| Error::Library("the traffic key has the wrong length".to_owned()))
    }

    /// Opens `body` in place: content, type, padding and tag. Returns the length without the tag.
    ///
    /// `header` is authenticated too. `None` if the record does not authenticate; then `body` holds no plaintext.
    #[inline(always)]
    pub fn open(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<usize> {
        dispatch!(self, one => one.open(nonce, header, body))
    }

    /// Seals all of `body` but its last 16 bytes in place, and puts the tag there; `None` if the AEAD fails.
    #[inline(always)]
    pub fn seal_in_place(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<()> {
        dispatch!(self, one => one.seal_in_place(nonce, header, body))
    }

    /// Seals `plain`, which is content and type, into `body`, which is 17 bytes longer than the content.
    ///
    /// `None` if the AEAD fails.
    #[inline(always)]
    pub fn seal(&self, nonce: [u8; IV], header: [u8; HEADER], plain: (&[u8], u8), body: &mut [u8]) -> Option<()> {
        dispatch!(self, one => one.seal(nonce, header, plain, body))
    }
}

#[cfg(test)]
mod tests;
