use crate::acme::{Acme, Change, Shared};
use crate::clock::now;
use crate::error::Error;
use crate::failure::Failure;
use crate::failures::StoredFailures;
use crate::folder::Lock;
use crate::leaf::Leaf;
use crate::order::{CERTIFICATE, ORDER, Ordering, StoredOrder, label};
use crate::plan::{FailureKind, Life, Next, Plan, Time};
use crate::responses::NextResponse;
use crate::staple::{Fetched, Staples};
use instant_acme::HttpClient;
use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tautline_tls::der::date;
use tokio::sync::oneshot;

/// The time between two looks at the folder. Other processes give this one half of [`SETTLE`](crate::order::SETTLE).
const LOOK: Duration = Duration::from_millis(500);

/// The longest pause after a server has refused a new certificate.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// A running renewal, which ends when it is dropped. An order that is in progress then is left to another process.
#[must_use = "the renewal ends when it is dropped"]
pub struct Renewal {
    _stop: oneshot::Sender<()>,
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
    }
}

impl Acme {
    /// Orders and renews the certificate on a thread of its own, and calls `changed` after each change of the file.
    ///
    /// `changed` puts the new file to use. If it cannot, it is called again later.
    ///
    /// Of several processes with the same folder one orders, and the others take what it stores. If it ends, another one goes
    /// on, also with an order in progress.
    ///
    /// # Errors
    /// [`Error::Thread`] if the thread cannot be started.
    pub fn renew(&self, changed: impl FnMut() -> Result<(), String> + Send + 'static) -> Result<Renewal, Error> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
        let shared = self.0.clone();
        let seed = getrandom::u64().unwrap_or_default();
        let run = move || {
            let mut keeping = Keeping::new(&shared, seed, changed);
            // It may end in the middle of a request, whose order is stored.
            runtime.block_on(until_stopped(keeping.run(), stopped));
            // Without waiting for a lookup of a name.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("tautline-acme".to_owned()).spawn(run).map_err(Error::Thread)?;
        Ok(Renewal { _stop: stop })
    }
}

/// Runs until the renewal is dropped.
async fn until_stopped(running: impl Future<Output = ()>, mut stopped: oneshot::Receiver<()>) {
    let mut running = pin!(running);
    poll_fn(|context| match Pin::new(&mut stopped).poll(context) {
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => running.as_mut().poll(context),
    })
    .await;
}

/// The work of the thread.
struct Keeping<'a, C> {
    shared: &'a Shared,
    plan: Plan,
    staples: Staples<'a>,
    changed: C,
    /// Makes clients of the authority.
    client: Box<dyn Fn() -> Box<dyn HttpClient>>,
    lock: Option<Lock>,
    /// The folder could not be locked, which is in the log.
    cannot_lock: bool,
    /// When `changed` is to be called again, and the pause after that.
    retry: Option<(Time, Duration)>,
}

impl<'a, C: FnMut() -> Result<(), String>> Keeping<'a, C> {
    fn new(shared: &'a Shared, seed: u64, changed: C) -> Self {
        let mut plan = Plan::new(seed);
        let stored = StoredFailures::read(&shared.folder);
        match stored {
            Some(stored) if stored.concern(&shared.config) => {
                plan = plan.after(stored.failures, stored.paused_until());
                if let Some(left) = stored.left(now()) {
                    let (left, failures, last) = (left.as_secs(), stored.failures, &stored.last);
                    log::warn!("acme: waits {left} s after failed orders ({failures}), of which the latest is: {last}");
                    shared.status().paused_until = Some(stored.paused_until());
                }
                shared.status().last_failure = Some(stored.last);
            }
            Some(_) => log::info!("acme: the pause after failed orders is over, since the options have changed"),
            None => {}
        }
        let transport = shared.transport.clone();
        let client = Box::new(move || Box::new(transport.clone()) as Box<dyn HttpClient>);
        Self {
            shared,
            plan,
            staples: Staples::new(shared, !seed),
            changed,
            client,
            lock: None,
            cannot_lock: false,
            retry: None,
        }
    }

    async fn run(&mut self) {
        self.hold();
        self.staples.hold(self.shared.leaf().as_ref(), true);
        loop {
            self.look();
            self.take_lock();
            let wait = if self.lock.is_some() { self.step().await } else { LOOK };
            tokio::time::sleep(wait.min(LOOK)).await;
        }
    }

    /// Does the next step. Returns the time until the one after it.
    async fn step(&mut self) -> Duration {
        let now = now();
        match self.plan.next(now) {
            Next::Wait(until) => match self.staples.plan.next(now) {
                NextResponse::Wait(response) => until.min(response).saturating_sub(now),
                NextResponse::Fetch => {
                    self.fetch().await;
                    Duration::ZERO
                }
            },
            Next::Ask => {
                self.ask().await;
                Duration::ZERO
            }
            Next::Order => {
                let replaced = self.shared.leaf();
                let ordered = self.ordering(replaced.as_ref()).run().await;
                match ordered {
                    Ok(()) => self.succeed(),
                    Err(failure) => self.fail(&failure),
                }
                Duration::ZERO
            }
        }
    }

    fn ordering<'o>(&'o self, replaced: Option<&'o Leaf>) -> Ordering<'o> {
        let Shared { config, folder, answers, transport, .. } = self.shared;
        let failures = self.plan.failures().0;
        Ordering { config, folder, answers, client: &*self.client, transport, replaced, failures }
    }

    /// Takes a certificate that has come, from this process or another one.
    fn look(&mut self) {
        let now = now();
        let change = self.shared.look(now);
        if change == Change::Certificate {
            self.hold();
            self.plan.succeed();
            self.shared.status().paused_until = None;
        }
        if change == Change::Lost {
            self.hold();
            self.staples.hold(None, true);
        } else if change != Change::Nothing {
            self.staples.hold(self.shared.leaf().as_ref(), change == Change::Certificate);
            self.retry = Some((now, Duration::from_secs(1)));
        }
        // A clock that went back must not keep a new certificate from the server.
        let is_due = |at: Time| at <= now || at > now + LONGEST_RETRY;
        let Some((_, pause)) = self.retry.filter(|(at, _)| is_due(*at)) else { return };
        self.retry = match (self.changed)() {
            Ok(()) => None,
            Err(why) => {
                log::error!("acme: the server does not take the new certificate, and is asked again: {why}");
                self.shared.status().count(FailureKind::Certificate);
                Some((now + pause, (pause * 2).min(LONGEST_RETRY)))
            }
        };
    }

    /// Plans the renewal of the certificate in use.
    fn hold(&mut self) {
        let config = &self.shared.config;
        let leaf = self.shared.leaf();
        let life: Option<Life> =
            leaf.filter(|leaf| leaf.serves(&config.names, &config.directory)).map(|leaf| leaf.life);
        self.plan.hold(life);
        self.shared.status().due = self.plan.due();
    }

    fn take_lock(&mut self) {
        if self.lock.is_some() {
            return;
        }
        match self.shared.folder.lock() {
            Ok(None) => self.cannot_lock = false,
            Ok(lock) => {
                self.cannot_lock = false;
                self.lock = lock;
                self.shared.status().orders_itself = true;
                // Its last words.
                self.look();
                self.hasten();
            }
            // It is tried twice a second.
            Err(_) if self.cannot_lock => {}
            Err(error) => {
                self.cannot_lock = true;
                let folder = self.shared.folder.path().display();
                log::error!("acme: cannot lock the folder {folder}, so nothing is ordered: {error}");
            }
        }
    }

    /// Goes on at once with an order that another process has left: authorities let it expire.
    fn hasten(&mut self) {
        let Shared { config, folder, .. } = self.shared;
        let stored = StoredOrder::read(folder.read(ORDER).ok().flatten().as_deref());
        if stored.is_some_and(|stored| stored.concerns(config)) {
            self.plan.hasten(now());
            self.shared.status().due = self.plan.due();
        }
    }

    /// Fetches an OCSP response. A revoked certificate is replaced.
    async fn fetch(&mut self) {
        match self.staples.fetch().await {
            Fetched::Good => self.plan.confirm(),
            Fetched::Failed => {}
            Fetched::Revoked(what) => {
                let pause = self.plan.revoke(now()).as_secs();
                log::error!("acme: {what}: clients will reject it; another one is ordered in {pause} seconds");
                self.note(FailureKind::Revoked, what);
            }
        }
        self.look();
    }

    async fn ask(&mut self) {
        let Some(leaf) = self.shared.leaf() else { return self.plan.stop_asking() };
        match self.ordering(None).suggestion(&leaf).await {
            Ok(Some((begin, end, again))) => {
                let [from, to] = [begin, end].map(|at| date(at.as_secs()));
                log::info!("acme: the authority suggests renewal between {from} and {to}");
                self.plan.suggest(Life { begin, end }, again, now());
            }
            Ok(None) => self.plan.stop_asking(),
            Err(failure) => {
                log::warn!("acme: the authority was not asked when to renew: {failure}");
                self.plan.ask_later(now());
            }
        }
        self.shared.status().due = self.plan.due();
    }

    fn succeed(&mut self) {
        let names = self.shared.config.names.join(", ");
        log::info!("acme: a new certificate for {names} is in {}", self.shared.folder.file(CERTIFICATE).display());
        {
            let mut status = self.shared.status();
            status.orders += 1;
            status.last_failure = None;
        }
        if let Err(error) = StoredFailures::forget(&self.shared.folder) {
            log::warn!("acme: cannot forget the failures before: {error}");
        }
        self.plan.succeed();
        self.look();
    }

    fn fail(&mut self, failure: &Failure) {
        let wait = self.shared.transport.wait().filter(|_| failure.is_of_load());
        let pause = self.plan.fail_for(failure.kind, wait, now());
        let kind = failure.kind.name();
        let config = &self.shared.config;
        let by = if failure.kind == FailureKind::Validation && config.tls_alpn && config.http {
            format!(" by {}", label(self.ordering(None).method()))
        } else {
            String::new()
        };
        log::error!("acme: no certificate ({kind}): {failure}; the next attempt is{by} in {} seconds", pause.as_secs());
        self.note(failure.kind, failure.to_string());
    }

    /// Counts and stores a failure, for operators and the next process.
    fn note(&self, kind: FailureKind, what: String) {
        {
            let mut status = self.shared.status();
            status.count(kind);
            status.last_failure = Some(what.clone());
            status.paused_until = Some(self.plan.failures().1);
        }
        let stored = StoredFailures::new(&self.shared.config, self.plan.failures(), what);
        // A folder that cannot be written is in the log already.
        if let Err(error) = stored.store(&self.shared.folder)
            && kind != FailureKind::Folder
        {
            log::error!("acme: cannot store the failure: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AcmeConfig, LETS_ENCRYPT};
    use crate::{Report, leaf};

    /// The renewal of a certificate of a year for one name, by a process that has just started.
    fn start(acme: &Acme) -> Keeping<'_, impl FnMut() -> Result<(), String>> {
        let mut keeping = Keeping::new(&acme.0, 1, || Ok(()));
        keeping.hold();
        keeping.take_lock();
        keeping
    }

    fn open(name: &str) -> Acme {
        let path = std::env::temp_dir().join(format!("tautline-acme-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Acme::open(AcmeConfig::new(["one.example"], &path).unwrap()).unwrap()
    }

    #[test]
    fn a_pause_outlives_a_restart_unless_options_change() {
        let acme = open("pause");
        let config = &acme.0.config;
        let until = now() + Duration::from_secs(1000);
        StoredFailures::new(config, (3, until), "the authority says: no".to_owned()).store(&acme.0.folder).unwrap();
        assert!(matches!(start(&acme).plan.next(now()), Next::Wait(_)));
        let why = acme.status().unreadiness().unwrap();
        assert!(why.contains("says: no; the next attempt is in ") && why.ends_with(" seconds"), "{why}");
        let (left, why) = Report::pause(config).unwrap();
        assert!(left.as_secs() > 900 && why.ends_with("no"), "{left:?} {why}");
        let mended = || config.clone();
        let binding = |id: &str, key: &str| crate::AccountBinding::new(id, key).unwrap();
        for other in [
            mended().with_profile("shortlived"),
            mended().with_profile(""),
            mended().with_contacts(["operator@one.example"]),
            mended().with_roots("roots"),
            mended().with_binding(binding("kid-1", "c2VjcmV0")),
            mended().with_challenges(true, true),
            mended().with_directory("https://localhost/dir").unwrap(),
        ] {
            assert_eq!(Report::pause(&other), None, "{other:?}");
            let stored = StoredFailures::new(&other, (3, until), String::new());
            assert!(stored.concern(&other) && !stored.concern(config));
        }
        let bound = [binding("kid-1", "c2VjcmV0"), binding("kid-1", "b3RoZXI"), binding("kid-2", "c2VjcmV0")];
        let digests = bound.map(|binding| mended().with_binding(binding).digest());
        assert!(digests[0] != digests[1] && digests[0] != digests[2] && digests[1] != digests[2]);
        std::fs::remove_dir_all(acme.folder()).unwrap();
    }

    #[test]
    fn an_order_in_progress_goes_on_at_once() {
        let acme = open("in-progress");
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["one.example".to_owned()]).unwrap();
        let chain = params.self_signed(&key).unwrap().pem();
        acme.0.folder.replace(CERTIFICATE, leaf::file(LETS_ENCRYPT, &chain, &key.serialize_pem()).as_bytes()).unwrap();
        let _ = acme.0.look(now());
        assert_eq!(start(&acme).plan.next(now()), Next::Ask);
        for (name, next) in [("two.example", Next::Ask), ("one.example", Next::Order)] {
            let order = serde_json::json!({"directory": LETS_ENCRYPT, "names": [name], "url": "https://a/order/1",
                "key": key.serialize_pem(), "answers": []});
            acme.0.folder.replace(ORDER, order.to_string().as_bytes()).unwrap();
            assert_eq!(start(&acme).plan.next(now()), next, "{name}");
        }
        std::fs::remove_dir_all(acme.folder()).unwrap();
    }
}
