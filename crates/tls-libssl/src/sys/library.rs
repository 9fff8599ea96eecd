#[cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl", feature = "libressl"))]
use super::table;
use super::table::{OPTIONAL, RawRefusal, Table};
use super::text::text;
use crate::flavour::Flavour;
use core::ffi::CStr;
use std::sync::OnceLock;

/// A place for the outcome of starting a library; each use makes one.
#[cfg(any(feature = "openssl", feature = "aws-lc", feature = "boringssl", feature = "libressl"))]
macro_rules! cell {
    () => {{
        static STARTED: OnceLock<Option<&'static Table>> = OnceLock::new();
        &STARTED
    }};
}

/// One library of this build that is started.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    pub(super) table: &'static Table,
    flavour: Flavour,
}

impl Library {
    /// The library, which the first call starts; `None` if it does not start.
    pub(crate) fn get(flavour: Flavour) -> Option<Self> {
        let table = match flavour {
            #[cfg(feature = "openssl")]
            Flavour::OpenSsl => Self::start(&raw const table::tautline_libssl_openssl, cell!()),
            #[cfg(feature = "aws-lc")]
            Flavour::AwsLc => Self::start(&raw const table::tautline_libssl_aws_lc, cell!()),
            #[cfg(feature = "boringssl")]
            Flavour::BoringSsl => Self::start(&raw const table::tautline_libssl_boringssl, cell!()),
            #[cfg(feature = "libressl")]
            Flavour::LibreSsl => Self::start(&raw const table::tautline_libssl_libressl, cell!()),
            #[cfg(feature = "external")]
            Flavour::External(library) => Self::start(library.table(), library.started()),
        };
        Some(Self { table: table?, flavour })
    }

    /// Starts the library behind `table` if it is not started yet.
    fn start(table: *const Table, started: &OnceLock<Option<&'static Table>>) -> Option<&'static Table> {
        *started.get_or_init(|| {
            // SAFETY: build scripts link such tables, which are immutable and live as long as the program. Each begins with its
            // size.
            let size = unsafe { table.cast::<usize>().read() };
            if size != size_of::<Table>() {
                return None;
            }
            // SAFETY: the table has this size, and holds only its size and pointers.
            let words = unsafe { core::slice::from_raw_parts(table.cast::<usize>(), size / size_of::<usize>()) };
            if words.iter().rev().skip(OPTIONAL).any(|&word| word == 0) {
                return None;
            }
            // SAFETY: as above; the table has the layout of this version, and a function in each field that needs one.
            let table = unsafe { &*table };
            // SAFETY: `init` takes nothing; the lock ensures that it is called once, before all else.
            (unsafe { (table.init)() } != 0).then_some(table)
        })
    }

    pub(crate) const fn flavour(self) -> Flavour {
        self.flavour
    }

    /// The library's name and version in its own words.
    fn version(self) -> String {
        // SAFETY: the call takes nothing.
        let version = unsafe { (self.table.version)() };
        // SAFETY: the shim returns a static string of the library.
        let version = unsafe { CStr::from_ptr(version) };
        version.to_string_lossy().into_owned()
    }
}

impl Flavour {
    /// The library's name and version in its own words, as `OpenSSL 3.6.3 9 Jun 2026`; empty if it does not start.
    #[must_use]
    pub fn version(self) -> String {
        Library::get(self).map(Library::version).unwrap_or_default()
    }
}

/// The reason why the library rejects a part of a configuration.
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    /// The library's words.
    pub(crate) reason: String,
}

/// The kinds of refusals: the constants `TL_CONFIG_...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    Library,
    NoCertificate,
    BadCertificate,
    NoKey,
    BadKey,
    Mismatch,
    KeyLog,
    Ed25519,
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
            8 => RefusalKind::Ed25519,
            _ => RefusalKind::Library,
        };
        Self { kind, reason: text(&raw.reason) }
    }
}
