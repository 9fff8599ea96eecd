use crate::schedule::{IV, Suite};
use core::fmt;
use tautline_tls::record::HEADER;

/// Length of the tag in bytes, for every suite of TLS 1.3.
pub(crate) const TAG: usize = 16;

/// A library that seals and opens records.
///
/// All providers make the same bytes, so a connection can change between them at any record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Provider {
    /// AWS-LC, through aws-lc-rs.
    AwsLc = 0,
    /// ring.
    #[cfg(feature = "ring")]
    Ring = 1,
}

impl Provider {
    /// All providers of this build, AWS-LC first.
    pub const ALL: [Self; PROVIDERS] = [
        Self::AwsLc,
        #[cfg(feature = "ring")]
        Self::Ring,
    ];

    /// The provider's name in configuration, logs and results: `aws-lc`, `ring`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            #[cfg(feature = "ring")]
            Self::Ring => "ring",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Number of providers in this build.
pub(crate) const PROVIDERS: usize = 1 + cfg!(feature = "ring") as usize;

/// The AEAD of one suite with one key, by one provider.
pub(crate) trait Aead: Sized {
    /// Expands a key; `None` if its length is not the suite's.
    fn new(suite: Suite, key: &[u8]) -> Option<Self>;

    /// Opens `body` in place: content, type, padding and tag. Returns the length without the tag.
    ///
    /// `None` if it does not authenticate; then `body` holds no plaintext.
    fn open(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<usize>;

    /// Seals all of `body` but its last [`TAG`] bytes in place, and puts the tag there; `None` if the AEAD fails.
    fn seal_in_place(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<()>;

    /// Seals `plain` and then the byte `kind` into `body`, which is one byte and a tag longer; `None` if the AEAD fails.
    fn seal(&self, nonce: [u8; IV], header: [u8; HEADER], plain: (&[u8], u8), body: &mut [u8]) -> Option<()>;
}

/// Copies `plain` and then `kind` to the front of `body`, for an AEAD that seals in place.
pub(crate) fn copy_inner((plain, kind): (&[u8], u8), body: &mut [u8]) -> Option<()> {
    let (content, behind) = body.split_at_mut_checked(plain.len())?;
    *behind.first_mut()? = kind;
    for (to, from) in content.chunks_mut(PIECE).zip(plain.chunks(PIECE)) {
        to.copy_from_slice(from);
    }
    Some(())
}

/// Largest piece of a copy in bytes.
///
/// From 2 KiB on, the C library copies with `rep movsb`. Where the destination is not aligned, as behind a header of five
/// bytes, some processors take up to forty times longer for that than for vectors (docs/experiments.md).
const PIECE: usize = 1024;
