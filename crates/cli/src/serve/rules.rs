//! `--rules`: who may do what in a hub. Without rules a hub serves this machine only.

use crate::failure::Failure;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tautline::Address;
use tautline_hub::{Hub, Rules};

/// The time between two looks at the files.
const INTERVAL: Duration = Duration::from_secs(1);

/// The rules of `--app hub`.
#[derive(Debug, clap::Args)]
pub(super) struct RulesArguments {
    /// File that says who may do what in --app hub (docs/hub.md): tokens, and namespaces of topics. SIGHUP reloads it, and so
    /// does a change of it or of the keys that it names.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Let everybody who reaches --app hub read and write all topics, also at addresses that other machines reach.
    #[arg(long, conflicts_with = "rules")]
    open: bool,
    #[arg(skip)]
    live: HubRules,
}

/// The rules of a running hub. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(super) struct HubRules(Arc<OnceLock<Live>>);

#[derive(Debug)]
struct Live {
    hub: Hub,
    file: PathBuf,
    /// The files of the last look, as they were.
    seen: Mutex<Vec<Stamp>>,
}

/// A file, and by what a change of it shows.
type Stamp = (PathBuf, Option<(u64, u64, Option<SystemTime>)>);

fn stamp(path: &PathBuf) -> Stamp {
    let of = |found: fs::Metadata| (found.ino(), found.len(), found.modified().ok());
    (path.clone(), fs::metadata(path).ok().map(of))
}

impl RulesArguments {
    /// Checks the options and files.
    pub(super) fn check(&self, is_hub: bool, addresses: &[Address]) -> Result<(), Failure> {
        if !is_hub && (self.open || self.rules.is_some()) {
            return Err(Failure::usage("--rules and --open need --app hub"));
        }
        let Some(file) = &self.rules else {
            let public = addresses.iter().find(|address| !self.open && is_hub && is_public(address));
            return public.map_or(Ok(()), |address| {
                Err(Failure::usage(format!(
                    "--app hub at {address}: everybody who reaches this address could read and write all topics. Say who may \
                     do what with --rules FILE (docs/hub.md), listen at 127.0.0.1, or add --open if that is meant"
                )))
            });
        };
        Rules::load(file).map(drop).map_err(|error| Failure::usage(format!("--rules: {error}")))
    }

    /// Has the rules hold for a hub.
    pub(super) fn apply(&self, hub: Hub) -> Result<Hub, Failure> {
        let Some(file) = &self.rules else { return Ok(hub) };
        let rules = Rules::load(file).map_err(|error| Failure::usage(format!("--rules: {error}")))?;
        let seen = Mutex::new(rules.files().iter().map(stamp).collect());
        hub.set_rules(rules);
        // A server has one hub.
        let _ = self.live.0.set(Live { hub: hub.clone(), file: file.clone(), seen });
        Ok(hub)
    }

    /// The files that a reload reads.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let rules = self.rules.as_ref().map(|file| (file, Rules::load(file)));
        rules.map_or_else(Vec::new, |(file, rules)| {
            rules.map_or_else(|_| vec![file.clone()], |rules| rules.files().to_vec())
        })
    }

    pub(super) fn live(&self) -> HubRules {
        self.live.clone()
    }
}

/// Whether other machines may reach this address.
fn is_public(address: &Address) -> bool {
    !matches!(address, Address::Unix(_) | Address::UnixUnnamed)
        && !matches!(address, Address::Tcp(at) if at.ip().to_canonical().is_loopback())
}

impl HubRules {
    /// Whether there are any.
    pub(super) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    /// Reads the files again. If they have a fault, the rules of before go on.
    pub(super) fn reload(&self) {
        let Some(live) = self.0.get() else { return };
        match Rules::load(&live.file) {
            Ok(rules) => {
                live.see(rules.files().iter().map(stamp).collect());
                live.hub.set_rules(rules);
                log::info!("the rules of the hub were reloaded: {}", live.file.display());
            }
            Err(error) => log::error!("the rules of the hub stay as they were: {error}"),
        }
    }

    /// Reloads the files when they have changed, for ever.
    pub(super) fn watch(&self) {
        let Some(live) = self.0.get() else { return };
        loop {
            std::thread::sleep(INTERVAL);
            if live.has_changed() {
                self.reload();
            }
        }
    }
}

impl Live {
    fn see(&self, now: Vec<Stamp>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Whether a file differs from the last look.
    fn has_changed(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now: Vec<Stamp> = seen.iter().map(|(path, _)| stamp(path)).collect();
        std::mem::replace(&mut *seen, now.clone()) != now
    }
}

#[cfg(test)]
mod tests {
    use super::{HubRules, RulesArguments};
    use tautline::Address;
    use tautline_hub::Hub;

    fn arguments(rules: Option<std::path::PathBuf>, open: bool) -> RulesArguments {
        RulesArguments { rules, open, live: HubRules::default() }
    }

    fn addresses(texts: &[&str]) -> Vec<Address> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_hub_without_rules_serves_this_machine_only() {
        let bare = arguments(None, false);
        for local in [&["127.0.0.1:1"][..], &["[::1]:1", "unix:/run/x"], &["[::ffff:127.0.0.1]:1"]] {
            assert!(bare.check(true, &addresses(local)).is_ok(), "{local:?}");
        }
        for public in [&["0.0.0.0:1"][..], &["127.0.0.1:1", "10.0.0.1:1"], &["[::]:1"]] {
            let said = bare.check(true, &addresses(public)).unwrap_err().to_string();
            assert!(said.contains("--rules") && said.contains("--open"), "{said}");
            assert!(arguments(None, true).check(true, &addresses(public)).is_ok());
            assert!(bare.check(false, &addresses(public)).is_ok(), "another application");
        }
        assert!(arguments(None, true).check(false, &[]).unwrap_err().to_string().contains("--app hub"));
    }

    #[test]
    fn a_change_of_the_files_is_seen_and_a_fault_changes_nothing() {
        let file = std::env::temp_dir().join(format!("taut-rules-{}.toml", std::process::id()));
        std::fs::write(&file, "").unwrap();
        let arguments = arguments(Some(file.clone()), false);
        arguments.check(true, &addresses(&["0.0.0.0:1"])).unwrap();
        arguments.apply(Hub::default()).unwrap();
        let live = arguments.live();
        let seen = live.0.get().unwrap();
        assert!(live.is_on() && !seen.has_changed());
        std::fs::write(&file, "revoked = [\"ann\"]").unwrap();
        assert!(seen.has_changed() && !seen.has_changed());
        live.reload();
        std::fs::write(&file, "revokd = []").unwrap();
        live.reload();
        let said = arguments.check(true, &[]).unwrap_err().to_string();
        assert!(said.contains("did you mean `revoked`"), "{said}");
        std::fs::remove_file(&file).unwrap();
    }
}
