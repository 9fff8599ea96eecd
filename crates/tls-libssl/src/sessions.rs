use crate::flavour::Flavour;
use crate::sys::ResumableSession;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_tls::{Certificate, ClientConfig, Roots};

/// Most sessions for each host.
const EACH: usize = 8;

/// The sessions that a client can resume. Engines whose configurations are clones of each other share them.
pub(crate) struct Sessions {
    hosts: Mutex<Hosts>,
    /// Most hosts that are remembered.
    most: usize,
}

/// The owner of sessions. A client with other roots or another certificate must not use them.
#[derive(PartialEq, Eq)]
struct Owner {
    flavour: Flavour,
    roots: Roots,
    certificate: Option<Certificate>,
}

/// The value that the configuration's [`Sessions`](tautline_tls::Sessions) stores.
struct Kept {
    owner: Owner,
    sessions: Arc<Sessions>,
}

#[derive(Default)]
struct Hosts {
    by_name: HashMap<Box<str>, VecDeque<ResumableSession>>,
    /// The names in the order in which they were added, the oldest in front.
    order: VecDeque<Box<str>>,
}

impl Sessions {
    /// The sessions of this configuration; `None` if it resumes nothing.
    pub(crate) fn of(flavour: Flavour, config: &ClientConfig) -> Option<Arc<Self>> {
        let (roots, certificate) = (config.roots.clone(), config.certificate.clone());
        let owner = Owner { flavour, roots, certificate };
        (!config.no_resumption).then(|| {
            config.sessions.with(|kept: &mut Option<Kept>| match kept {
                Some(kept) if kept.owner == owner => Arc::clone(&kept.sessions),
                _ => {
                    let sessions = Arc::new(Self { hosts: Mutex::default(), most: config.sessions.hosts() });
                    Arc::clone(&kept.insert(Kept { owner, sessions }).sessions)
                }
            })
        })
    }

    /// Takes the newest session with `host`.
    pub(crate) fn take(&self, host: &str) -> Option<ResumableSession> {
        let mut hosts = self.lock();
        let sessions = hosts.by_name.get_mut(host)?;
        sessions.pop_back()
    }

    /// Stores `session`. If there are too many for the host, the oldest is dropped.
    pub(crate) fn put(&self, host: &str, session: ResumableSession) {
        let mut hosts = self.lock();
        if !hosts.by_name.contains_key(host) {
            if hosts.order.len() == self.most
                && let Some(oldest) = hosts.order.pop_front()
            {
                hosts.by_name.remove(&oldest);
            }
            hosts.order.push_back(host.into());
        }
        let sessions = hosts.by_name.entry(host.into()).or_default();
        if sessions.len() == EACH {
            sessions.pop_front();
        }
        sessions.push_back(session);
    }

    fn lock(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
