use super::table::{self, RawRefusal, Table};
use super::text;
use crate::Flavour;
use core::ffi::CStr;
use std::sync::OnceLock;

/// One library that is built in, and ready.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    pub(super) table: &'static Table,
    flavour: Flavour,
}

impl Library {
    /// The library, set up at the first call; `None` where it does not start.
    pub(crate) fn get(flavour: Flavour) -> Option<Self> {
        static READY: [OnceLock<bool>; Flavour::KINDS] = [const { OnceLock::new() }; Flavour::KINDS];
        // SAFETY: the build script links one such table for each feature, immutable, with the layout that `size` confirms below.
        let table: &'static Table = unsafe {
            match flavour {
                #[cfg(feature = "openssl")]
                Flavour::OpenSsl => &table::tautline_libssl_openssl,
                #[cfg(feature = "aws-lc")]
                Flavour::AwsLc => &table::tautline_libssl_aws_lc,
                #[cfg(feature = "boringssl")]
                Flavour::BoringSsl => &table::tautline_libssl_boringssl,
                #[cfg(feature = "libressl")]
                Flavour::LibreSsl => &table::tautline_libssl_libressl,
            }
        };
        let ready = READY.get(flavour as usize)?;
        let is_ready = *ready.get_or_init(|| {
            // SAFETY: `init` takes nothing; the lock has it called once and before all else.
            table.size == size_of::<Table>() && unsafe { (table.init)() } != 0
        });
        is_ready.then_some(Self { table, flavour })
    }

    pub(crate) const fn flavour(self) -> Flavour {
        self.flavour
    }

    /// The library's name and version in its own words.
    pub(crate) fn version(self) -> String {
        // SAFETY: the call takes nothing.
        let version = unsafe { (self.table.version)() };
        // SAFETY: the shim gives a string that is part of the library.
        let version = unsafe { CStr::from_ptr(version) };
        version.to_string_lossy().into_owned()
    }
}

/// Why the library refuses a part of a configuration.
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    /// The library's words.
    pub(crate) reason: String,
}

/// The constants `TL_CONFIG_...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    Library,
    NoCertificate,
    BadCertificate,
    NoKey,
    BadKey,
    Mismatch,
    KeyLog,
}

impl From<&RawRefusal> for Refusal {
    fn from(raw: &RawRefusal) -> Self {
        let kind = match raw.kind {
            2 => RefusalKind::NoCertificate,
            3 => RefusalKind::BadCertificate,
            4 => RefusalKind::NoKey,
            5 => RefusalKind::BadKey,
            6 => RefusalKind::Mismatch,
            7 => RefusalKind::KeyLog,
            _ => RefusalKind::Library,
        };
        Self { kind, reason: text(&raw.reason) }
    }
}
