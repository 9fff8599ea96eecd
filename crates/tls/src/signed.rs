use crate::der::{Der, SEQUENCE};

/// A message with its signature: the form that certificates and responses share.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The signed bytes.
    pub message: &'a [u8],
    /// The algorithm's identifier, without the header of its SEQUENCE.
    pub algorithm: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

/// The key of a SubjectPublicKeyInfo.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The algorithm's identifier, without the header of its SEQUENCE.
    pub algorithm: &'a [u8],
    /// The key.
    pub bits: &'a [u8],
}

impl<'a> Signed<'a> {
    /// The parts of a certificate.
    pub(crate) fn of(certificate: &'a [u8]) -> Option<Self> {
        Self::take(&mut Der(Der(certificate).take(SEQUENCE)?))
    }

    /// Takes the message, the algorithm and the signature, which follow one another.
    pub(crate) fn take(elements: &mut Der<'a>) -> Option<Self> {
        let message = elements.element()?;
        Some(Self { message, algorithm: elements.take(SEQUENCE)?, signature: elements.bytes_of_bits()? })
    }
}

impl<'a> Key<'a> {
    /// Reads the content of a SubjectPublicKeyInfo, without the header of its SEQUENCE.
    #[must_use]
    pub fn read(info: &'a [u8]) -> Option<Self> {
        let mut info = Der(info);
        Some(Self { algorithm: info.take(SEQUENCE)?, bits: info.bytes_of_bits()? })
    }
}
