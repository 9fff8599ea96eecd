use crate::config::AcmeConfig;
use crate::folder::Folder;
use crate::plan::{Time, longest_pause};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// The file of [`StoredFailures`].
const FILE: &str = "failures.json";

/// The failures since the last success, for a process that starts anew, and for operators.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredFailures {
    directory: String,
    names: Vec<String>,
    /// The digest of the other options that an authority sees.
    #[serde(default)]
    options: String,
    pub(crate) failures: u32,
    /// Seconds since 1970.
    paused_until: u64,
    /// The latest one.
    pub(crate) last: String,
}

impl StoredFailures {
    pub(crate) fn new(config: &AcmeConfig, (failures, paused_until): (u32, Time), last: String) -> Self {
        let AcmeConfig { directory, names, .. } = config.clone();
        Self { directory, names, options: config.digest(), failures, paused_until: paused_until.as_secs(), last }
    }

    /// The failures that are stored; `None` without any.
    pub(crate) fn read(folder: &Folder) -> Option<Self> {
        folder.read(FILE).ok().flatten().and_then(|file| serde_json::from_slice(&file).ok())
    }

    pub(crate) fn store(&self, folder: &Folder) -> io::Result<()> {
        folder.replace(FILE, &serde_json::to_vec_pretty(self)?)
    }

    pub(crate) fn forget(folder: &Folder) -> io::Result<()> {
        folder.remove(FILE)
    }

    /// Whether they concern this certificate by this authority, ordered in the same way. Other options may be the remedy.
    pub(crate) fn concern(&self, config: &AcmeConfig) -> bool {
        self.directory == config.directory && self.names == config.names && self.options == config.digest()
    }

    /// The time that is left of the pause; `None` if it is over, or longer than any: then the clock was wrong.
    pub(crate) fn left(&self, now: Time) -> Option<Duration> {
        let left = self.paused_until().saturating_sub(now);
        (!left.is_zero() && left <= longest_pause()).then_some(left)
    }

    pub(crate) const fn paused_until(&self) -> Time {
        Time::from_secs(self.paused_until)
    }
}
