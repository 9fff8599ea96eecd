use aws_lc_rs::error::Unspecified;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use tautline_tls::{Error, TicketSecret};
use zeroize::Zeroizing;

/// HKDF's salt and labels.
///
/// The hosts of a fleet must agree on these, on the order of the other inputs, and on the layout of a ticket. A change
/// to any of them needs a new version in all three.
const SALT: &[u8] = b"tautline ticket secret v1";
const NAME_LABEL: &[u8] = b"tautline ticket name v1";
const KEY_LABEL: &[u8] = b"tautline ticket key v1";

/// Fills bytes at random; returns `false` if it cannot.
pub type Random = Box<dyn Fn(&mut [u8]) -> bool + Send + Sync>;

/// An engine's key, which seals the tickets of one period; it erases itself on drop.
pub trait Key: Sized + Send + Sync + 'static {
    /// Makes a key from `material`.
    ///
    /// # Errors
    /// [`Error::Library`] if the engine's library cannot make one.
    fn new(material: &Material) -> Result<Self, Error>;
}

/// The bytes that a key is made from; erased on drop.
pub struct Material {
    name: [u8; Self::NAME],
    key: Zeroizing<[u8; Self::KEY]>,
}

impl Material {
    /// Length of a name in bytes.
    pub const NAME: usize = 16;

    /// Length of a key in bytes: 32 for the cipher, and 32 for a MAC if the cipher does not authenticate.
    pub const KEY: usize = 64;

    /// The name that each ticket begins with, so that a server finds the key that opens it.
    #[must_use]
    pub const fn name(&self) -> &[u8; Self::NAME] {
        &self.name
    }

    /// The material with these bytes: the name, and then the secret part.
    pub(crate) fn of(name: &[u8; Self::NAME], key: &[u8; Self::KEY]) -> Self {
        Self { name: *name, key: Zeroizing::new(*key) }
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

/// Makes the keys of one engine.
pub(crate) struct KeyMaker {
    /// The engine's ticket format.
    ///
    /// Engines cannot open each other's tickets, so hosts with different formats derive different keys.
    pub(crate) format: &'static str,
    pub(crate) random: Random,
}

impl KeyMaker {
    /// Makes the material of a key that no other server has.
    pub(crate) fn random(&self) -> Result<Material, Error> {
        let mut material = Material { name: [0; Material::NAME], key: Zeroizing::new([0; Material::KEY]) };
        if !((self.random)(&mut material.name) && (self.random)(&mut *material.key)) {
            return Err(Error::Library("no randomness for a ticket key".to_owned()));
        }
        Ok(material)
    }

    /// Derives a fleet's key for an epoch: the one with number `epoch` since 1970, each of them `seconds` long.
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
