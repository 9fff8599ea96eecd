//! `--rules`: who may do what in a hub. Without rules a hub serves this machine only.

use crate::failure::Failure;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tautline::Address;
use tautline_hub::{Hub, Rules, RulesError};

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
    pub(super) live: HubRules,
}

/// The rules of a running hub. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(super) struct HubRules(Arc<OnceLock<Live>>);

#[derive(Debug)]
struct Live {
    hub: Hub,
    file: PathBuf,
    /// Whether the process may connect to an application.
    may_connect: bool,
    seen: Mutex<Seen>,
}

/// The files of the rules, as they were.
#[derive(Debug)]
struct Seen {
    /// At the last reload.
    loaded: Vec<Stamp>,
    /// At the last look, if they had changed.
    changed: Option<Vec<Stamp>>,
}

impl Seen {
    const fn new(loaded: Vec<Stamp>) -> Self {
        Self { loaded, changed: None }
    }

    /// Whether the files have changed since the last reload, and not since the last look: another program may be writing them, and
    /// an empty file is one whose rules end all subscriptions.
    fn has_changed(&mut self) -> bool {
        let now: Vec<Stamp> = self.loaded.iter().map(|(path, _)| stamp(path)).collect();
        let before = self.changed.take();
        if now == self.loaded {
            return false;
        }
        let is_settled = before.is_some_and(|before| before == now);
        if is_settled {
            // One with a fault is not read again.
            self.loaded = now;
        } else {
            self.changed = Some(now);
        }
        is_settled
    }
}

/// A file, and by what a change of it shows.
type Stamp = (PathBuf, Option<(u64, u64, Option<SystemTime>)>);

fn stamp(path: &PathBuf) -> Stamp {
    let of = |found: fs::Metadata| (found.ino(), found.len(), found.modified().ok());
    (path.clone(), fs::metadata(path).ok().map(of))
}

/// Reads the rules. The stamps are those of files before they were read, so a change meanwhile shows at the next look.
fn load(file: &Path) -> Result<(Rules, Vec<Stamp>), RulesError> {
    let stamps = Rules::load(file)?.files().iter().map(stamp).collect();
    Ok((Rules::load(file)?, stamps))
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

    /// Has the rules hold for a hub of a process that may connect to others, or gives that up.
    pub(super) fn apply(&self, hub: Hub, may_connect: bool) -> Result<Hub, Failure> {
        let Some(file) = &self.rules else { return Ok(hub) };
        let (rules, stamps) = load(file).map_err(|error| Failure::usage(format!("--rules: {error}")))?;
        let seen = Mutex::new(Seen::new(stamps));
        hub.set_rules(rules);
        // A server has one hub.
        let _ = self.live.0.set(Live { hub: hub.clone(), file: file.clone(), may_connect, seen });
        Ok(hub)
    }

    /// The files that a reload reads.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let rules = self.rules.as_ref().map(|file| (file, Rules::load(file)));
        rules.map_or_else(Vec::new, |(file, rules)| {
            rules.map_or_else(|_| vec![file.clone()], |rules| rules.files().to_vec())
        })
    }

    /// Whether the rules name an application that the hub connects to.
    pub(super) fn has_hooks(&self) -> bool {
        self.rules.as_ref().is_some_and(|file| Rules::load(file).is_ok_and(|rules| rules.has_hooks()))
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
        // One reload after the other, or rules that were read earlier could come last.
        live.reload(&mut live.seen());
    }

    /// Reloads the files when they have changed, for ever.
    pub(super) fn watch(&self) {
        let Some(live) = self.0.get() else { return };
        loop {
            std::thread::sleep(INTERVAL);
            live.look();
        }
    }
}

impl Live {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reloads the files if they have changed. Whether they had.
    fn look(&self) -> bool {
        let mut seen = self.seen();
        let has_changed = seen.has_changed();
        if has_changed {
            self.reload(&mut seen);
        }
        has_changed
    }

    fn reload(&self, seen: &mut Seen) {
        match load(&self.file) {
            Ok((rules, stamps)) => {
                *seen = Seen::new(stamps);
                if rules.has_hooks() && !self.may_connect {
                    // All questions would fail, and lock all clients out.
                    let remedy = "start the server anew, since --harden has taken its connections to others from it";
                    return log::error!("the rules of the hub stay as they were: they have [hooks] now; {remedy}");
                }
                self.hub.set_rules(rules);
                log::info!("the rules of the hub were reloaded: {}", self.file.display());
            }
            Err(error) => log::error!("the rules of the hub stay as they were: {error}"),
        }
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
        arguments.apply(Hub::default(), false).unwrap();
        let live = arguments.live.clone();
        let inner = live.0.get().unwrap();
        assert!(live.is_on() && !inner.look());
        // Another program is writing it.
        std::fs::write(&file, "revoked").unwrap();
        assert!(!inner.look(), "it may change further");
        std::fs::write(&file, "revoked = [\"ann\"]").unwrap();
        assert!(!inner.look() && inner.look() && !inner.look());
        std::fs::write(&file, "revokd = [\"ann\"]").unwrap();
        assert!(!inner.look() && inner.look() && !inner.look(), "a fault is told once");
        std::fs::write(&file, "revoked = []").unwrap();
        live.reload();
        assert!(!inner.look(), "a signal has it read at once");
        let secret = file.with_extension("secret");
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
        let hooks =
            format!("[hooks]\nurl = \"http://127.0.0.1:1/\"\nsecret = {secret:?}\n[[namespace]]\ntopics = \"a\"\n");
        std::fs::write(&file, hooks).unwrap();
        assert!(arguments.has_hooks(), "a server that starts now connects to it");
        live.reload();
        std::fs::remove_file(&secret).unwrap();
        std::fs::write(&file, "revokd = []").unwrap();
        live.reload();
        let said = arguments.check(true, &[]).unwrap_err().to_string();
        assert!(said.contains("did you mean `revoked`"), "{said}");
        std::fs::remove_file(&file).unwrap();
    }
}
