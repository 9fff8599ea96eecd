use crate::Flavour;
use crate::sys::ResumableSession;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tautline_tls::{Certificate, ClientConfig, Roots};

/// Hosts that a client remembers.
const HOSTS: usize = 128;

/// Sessions for each of them.
const EACH: usize = 8;

/// What a client keeps to resume its sessions, shared by all engines whose configurations are clones of each other.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Hosts>);

/// Whose sessions they are: whoever trusts others, or is somebody else, must not use them.
#[derive(PartialEq, Eq)]
struct Owner {
    flavour: Flavour,
    roots: Roots,
    certificate: Option<Certificate>,
}

/// What stays in a configuration's memory.
struct Kept {
    owner: Owner,
    sessions: Arc<Sessions>,
}

#[derive(Default)]
struct Hosts {
    by_name: HashMap<Box<str>, VecDeque<ResumableSession>>,
    /// The names, the one that was added first in front.
    order: VecDeque<Box<str>>,
}

impl Sessions {
    /// What is kept for this configuration; `None` where nothing is to be.
    pub(crate) fn of(flavour: Flavour, config: &ClientConfig) -> Option<Arc<Self>> {
        let (roots, certificate) = (config.roots.clone(), config.certificate.clone());
        let owner = Owner { flavour, roots, certificate };
        (!config.no_resumption).then(|| {
            config.sessions.with(|kept: &mut Option<Kept>| match kept {
                Some(kept) if kept.owner == owner => Arc::clone(&kept.sessions),
                _ => Arc::clone(&kept.insert(Kept { owner, sessions: Arc::default() }).sessions),
            })
        })
    }

    /// The newest session with `host`, which is gone then.
    pub(crate) fn take(&self, host: &str) -> Option<ResumableSession> {
        let mut hosts = self.lock();
        let sessions = hosts.by_name.get_mut(host)?;
        sessions.pop_back()
    }

    /// Keeps `session`; the oldest gives way where there are too many.
    pub(crate) fn put(&self, host: &str, session: ResumableSession) {
        let mut hosts = self.lock();
        if !hosts.by_name.contains_key(host) {
            if hosts.order.len() == HOSTS
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
