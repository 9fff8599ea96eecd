#[cfg(feature = "libssl")]
use tautline::TlsEngine;
#[cfg(feature = "libssl")]
use tautline::layers::tls_libssl::Flavour;
use tautline_measure::named;

named! {
    /// Path of records between a TLS library and its caller.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Strategy {
        /// Records pass through a memory BIO in both directions, as in most programs.
        MemoryBio = "memory-bio",
        /// The library reads from and writes to the caller's buffers. A reader copies the plaintext from there.
        WindowBio = "window-bio",
        /// As `WindowBio`, but the library opens records into the reader's memory if a whole record fits there.
        Direct = "direct",
        /// The readers and writers of rustls.
        Buffered = "buffered",
        /// The unbuffered interface of rustls.
        Unbuffered = "unbuffered",
        /// Records opened and sealed in place.
        Fused = "fused",
        /// No TLS: the AEAD alone, in the framing of TLS 1.3.
        Aead = "aead",
    }
}

/// A TLS library with one of its strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Engine that the library belongs to; `None` for the AEAD alone.
    pub tls: Option<&'static str>,
    /// Path of its records.
    pub strategy: Strategy,
}

impl Variant {
    /// Every variant of this build.
    pub fn all() -> Vec<Self> {
        let mut variants = Vec::new();
        #[cfg(feature = "libssl")]
        for flavour in flavours() {
            let variant = |strategy| Self { tls: Some(flavour.name()), strategy };
            // Only the OpenSSL family has BIOs.
            variants.extend(Flavour::ALL.contains(&flavour).then(|| variant(Strategy::MemoryBio)));
            variants.extend([Strategy::WindowBio, Strategy::Direct].map(variant));
        }
        let rustls = |strategy| Self { tls: Some("rustls"), strategy };
        variants.extend([Strategy::Buffered, Strategy::Unbuffered].map(rustls));
        variants.push(Self { tls: Some("fused"), strategy: Strategy::Fused });
        variants.push(Self { tls: None, strategy: Strategy::Aead });
        variants
    }

    /// Name in tables and messages: `openssl direct`.
    pub fn name(self) -> String {
        self.tls.map_or_else(|| self.strategy.name().to_owned(), |tls| format!("{tls} {}", self.strategy.name()))
    }

    /// Whether the library can be made to write outside its caller's buffers.
    pub const fn can_spill(self) -> bool {
        matches!(self.strategy, Strategy::WindowBio)
    }
}

/// The libraries in C of this build.
#[cfg(feature = "libssl")]
pub(super) fn flavours() -> impl Iterator<Item = Flavour> {
    TlsEngine::all().filter_map(|engine| if let TlsEngine::Libssl(flavour) = engine { Some(flavour) } else { None })
}
