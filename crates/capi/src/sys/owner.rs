//! A loop with its connections, and the program's part of a connection.

use crate::slots::Slots;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::AtomicU64;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tautline::{DialId, ShardHandle};

/// One loop of a server or a client. It is valid until that is freed.
pub struct Loop {
    pub(super) number: u32,
    pub(super) handle: OnceLock<ShardHandle>,
    slots: Mutex<Slots>,
    /// The targets of a client, by their numbers.
    dials: Mutex<HashMap<u64, DialId>>,
    /// Callbacks that returned an error.
    pub(super) failed: AtomicU64,
}

impl Loop {
    pub(super) fn new(number: u32) -> Arc<Self> {
        Arc::new(Self {
            number,
            handle: OnceLock::new(),
            slots: Mutex::default(),
            dials: Mutex::default(),
            failed: AtomicU64::new(0),
        })
    }

    /// The targets that were not given up.
    pub(super) fn dials(&self) -> MutexGuard<'_, HashMap<u64, DialId>> {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present connections.
    pub(super) fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program's part of a connection.
#[derive(Debug)]
pub(super) struct State {
    pub(super) id: u64,
    pub(super) user: *mut c_void,
    /// Whether a callback of it has failed.
    pub(super) failed: bool,
}

impl Default for State {
    fn default() -> Self {
        Self { id: 0, user: null_mut(), failed: false }
    }
}

// SAFETY: the pointer is only handed back to the program, which gave it for the connection.
unsafe impl Send for State {}

impl State {
    pub(super) const fn with_user(user: *mut c_void) -> Self {
        Self { id: 0, user, failed: false }
    }
}
