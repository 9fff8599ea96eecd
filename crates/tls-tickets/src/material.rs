use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use tautline_tls::{Error, TicketSecret};
use zeroize::Zeroizing;

/// HKDF's salt and labels. They, the order of what follows them, and the layout of a ticket are what hosts of one fleet must
/// agree on: whoever changes one changes the version in all.
const SALT: &[u8] = b"tautline ticket secret v1";
const NAME_LABEL: &[u8] = b"tautline ticket name v1";
const KEY_LABEL: &[u8] = b"tautline ticket key v1";

/// Fills bytes at random, or says that it cannot.
pub type Random = Box<dyn Fn(&mut [u8]) -> bool + Send + Sync>;

/// What seals tickets for one period, in the form that one engine needs. It erases itself when it is dropped.
pub trait Key: Sized + Send + Sync + 'static {
    /// A key of this material.
    ///
    /// # Errors
    /// [`Error::Library`] where the engine's library cannot make one.
    fn new(material: &Material) -> Result<Self, Error>;
}

/// What a key is made of; erased when it is dropped.
pub struct Material {
    name: [u8; Self::NAME],
    key: Zeroizing<[u8; Self::KEY]>,
}

impl Material {
    /// Bytes of a name.
    pub const NAME: usize = 16;

    /// Bytes of a key: 32 for the cipher, and 32 for a separate authenticator where the cipher is none.
    pub const KEY: usize = 64;

    /// What a ticket begins with, so that it says at once which key fits.
    #[must_use]
    pub const fn name(&self) -> &[u8; Self::NAME] {
        &self.name
    }

    /// The secret part.
    #[must_use]
    pub fn key(&self) -> &[u8; Self::KEY] {
        &self.key
    }
}

impl Key for Material {
    fn new(material: &Material) -> Result<Self, Error> {
        Ok(Self { name: material.name, key: material.key.clone() })
    }
}

/// How one engine's keys are made.
pub(crate) struct Maker {
    /// Whose tickets they are: engines do not understand each other's, so hosts that run different ones derive different keys.
    pub(crate) format: &'static str,
    pub(crate) random: Random,
}

impl Maker {
    /// A key that nobody else has.
    pub(crate) fn random<K: Key>(&self) -> Result<K, Error> {
        let mut material = Material { name: [0; Material::NAME], key: Zeroizing::new([0; Material::KEY]) };
        if !((self.random)(&mut material.name) && (self.random)(&mut *material.key)) {
            return Err(Error::Library("no randomness for a ticket key".to_owned()));
        }
        K::new(&material)
    }

    /// The key of this `epoch` (by number, since 1970) of so many seconds.
    pub(crate) fn derived<K: Key>(&self, secret: &TicketSecret, seconds: u64, epoch: u64) -> Result<K, Error> {
        let material = self
            .derive(secret, seconds, epoch)
            .map_err(|_| Error::Library("no ticket key could be derived".to_owned()))?;
        K::new(&material)
    }

    fn derive(&self, secret: &TicketSecret, seconds: u64, epoch: u64) -> Result<Material, Unspecified> {
        let prk = Salt::new(HKDF_SHA256, SALT).extract(secret.bytes());
        let (seconds, epoch) = (seconds.to_be_bytes(), epoch.to_be_bytes());
        let expand = |label, out: &mut [u8]| {
            prk.expand(&[label, &seconds[..], &epoch, self.format.as_bytes()], Len(out.len()))?.fill(out)
        };
        let mut material = Material { name: [0; Material::NAME], key: Zeroizing::new([0; Material::KEY]) };
        expand(NAME_LABEL, &mut material.name)?;
        expand(KEY_LABEL, &mut *material.key)?;
        Ok(material)
    }
}

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}
