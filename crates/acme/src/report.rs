use crate::clock::now;
use crate::config::AcmeConfig;
use crate::failures::StoredFailures;
use crate::folder::Folder;
use crate::leaf::Leaf;
use crate::order::{CERTIFICATE, ORDER};
use crate::plan::Time;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The state of a folder of certificates, for operators. Nothing in the folder changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The names of the certificate; empty before the first one.
    pub names: Vec<String>,
    /// When the certificate expires; `None` before the first one.
    pub expiry: Option<Time>,
    /// Why the file of the certificate cannot be used.
    pub unusable: Option<String>,
    /// Whether the certificate names an OCSP responder.
    pub names_responder: bool,
    /// Whether clients reject the certificate without an OCSP response ("must-staple").
    pub must_be_stapled: bool,
    /// When the OCSP response expires; `None` without one.
    pub response_expiry: Option<Time>,
    /// The failures since the last success.
    pub failures: u32,
    /// The latest of them, with the authority's text.
    pub last_failure: Option<String>,
    /// No order begins before this time.
    pub paused_until: Option<Time>,
    /// Whether an order is in progress.
    pub is_ordering: bool,
    /// Whether a process has the right to order.
    pub is_kept: bool,
}

impl Report {
    /// Reads a folder.
    ///
    /// # Errors
    /// The system's error if this is no folder, or may not be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        std::fs::read_dir(path)?;
        let folder = Folder::at(path);
        let (leaf, unusable) = match folder.read(CERTIFICATE)?.map(|file| Leaf::read(&file)) {
            Some(Ok(leaf)) => (Some(leaf).filter(|leaf| !leaf.is_placeholder), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let failures = StoredFailures::read(&folder);
        Ok(Self {
            expiry: leaf.as_ref().map(|leaf| leaf.life.end),
            names_responder: leaf.as_ref().is_some_and(|leaf| leaf.responder.is_some()),
            must_be_stapled: leaf.as_ref().is_some_and(|leaf| leaf.must_be_stapled),
            response_expiry: leaf.as_ref().and_then(Leaf::response_life).map(|life| life.end),
            names: leaf.map(|leaf| leaf.names).unwrap_or_default(),
            unusable,
            failures: failures.as_ref().map_or(0, |stored| stored.failures),
            paused_until: failures.as_ref().map(StoredFailures::paused_until),
            last_failure: failures.map(|stored| stored.last),
            is_ordering: folder.stamp(ORDER).is_some(),
            is_kept: folder.is_locked(),
        })
    }

    /// The time that a server with this configuration would wait now before it orders, and the failure for which it would;
    /// `None` if it would not wait.
    #[must_use]
    pub fn pause(config: &AcmeConfig) -> Option<(Duration, String)> {
        let stored = StoredFailures::read(&Folder::at(&config.folder)).filter(|stored| stored.concern(config))?;
        stored.left(now()).map(|left| (left, stored.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acme, leaf};

    #[test]
    fn a_report_tells_of_certificate_and_failures() {
        let path = std::env::temp_dir().join(format!("tautline-acme-report-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        assert!(Report::of(&path).is_err());
        let config = AcmeConfig::new(["one.example"], &path).unwrap();
        let acme = Acme::open(config.clone()).unwrap();
        let before = Report::of(&path).unwrap();
        assert_eq!((before.expiry, before.failures, before.is_kept), (None, 0, false));
        assert!(acme.status().unreadiness().is_some());
        let folder = Folder::open(&path).unwrap();
        let paused = (3, now() + Time::from_secs(60));
        StoredFailures::new(&config, paused, "the authority says: no".to_owned()).store(&folder).unwrap();
        let text = leaf::placeholder(&["one.example".to_owned()], now()).unwrap();
        folder.replace(CERTIFICATE, &text.as_bytes()[..100]).unwrap();
        let lock = folder.lock().unwrap();
        let report = Report::of(&path).unwrap();
        assert!(report.unusable.is_some() && report.is_kept && report.failures == 3);
        assert_eq!(report.last_failure.as_deref(), Some("the authority says: no"));
        drop(lock);
        assert!(!Report::of(&path).unwrap().is_kept);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
