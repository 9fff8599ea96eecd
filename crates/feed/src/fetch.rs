//! Snapshots by HTTP, on a thread of their own.

use crate::ids::FetchId;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Fetches by HTTP: a closure around any HTTP client. It runs on a thread of its own, so it may block.
pub trait Fetch: Send + 'static {
    /// The body of the response to `GET url`, or why there is none.
    ///
    /// # Errors
    /// A reason for [`Notice::SnapshotFailed`](crate::Notice::SnapshotFailed), also for any status but 200.
    fn fetch(&mut self, url: &str) -> Result<Vec<u8>, String>;
}

impl<F: FnMut(&str) -> Result<Vec<u8>, String> + Send + 'static> Fetch for F {
    fn fetch(&mut self, url: &str) -> Result<Vec<u8>, String> {
        self(url)
    }
}

/// Requests that wait, at most. A feed has one for each book.
const MOST: usize = 1024;

/// The thread that fetches. It ends with this value, after the request that runs.
pub(crate) struct Fetcher {
    requests: SyncSender<(FetchId, String)>,
}

impl Fetcher {
    /// `answer` gets the results, and says whether anybody wants more. `None` if no thread can be had.
    pub(crate) fn start(
        mut fetch: Box<dyn Fetch>,
        answer: impl Fn(FetchId, Result<Vec<u8>, String>) -> bool + Send + 'static,
    ) -> Option<Self> {
        let (requests, waiting) = sync_channel::<(FetchId, String)>(MOST);
        let run = move || {
            while let Ok((id, url)) = waiting.recv() {
                if !answer(id, fetch.fetch(&url)) {
                    return;
                }
            }
        };
        thread::Builder::new().name("tautline-fetch".to_owned()).spawn(run).ok()?;
        Some(Self { requests })
    }

    /// Begins a fetch. False if too many wait, or the thread has ended.
    pub(crate) fn begin(&self, id: FetchId, url: String) -> bool {
        self.requests.try_send((id, url)).is_ok()
    }
}
