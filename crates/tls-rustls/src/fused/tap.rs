//! The traffic secrets, which rustls tells to nobody but a log of keys.

use core::cell::Cell;
use rustls::{KeyLog, NoKeyLog};
use std::sync::Arc;
use tautline_tls_records::Secret;

thread_local! {
    /// What rustls derived on this thread since it was last taken. It logs inside our own call into it.
    static TAPPED: Cell<Tapped> = const { Cell::new(Tapped { client: None, server: None }) };
}

/// The first traffic secrets of both ends (RFC 8446, section 7.1), as far as they are known.
#[derive(Default)]
pub(crate) struct Tapped {
    pub(super) client: Option<Secret>,
    pub(super) server: Option<Secret>,
}

impl Tapped {
    /// Adds what rustls derived on this thread since the last call.
    pub(super) fn collect(&mut self) {
        let new = TAPPED.take();
        for (known, new) in [(&mut self.client, new.client), (&mut self.server, new.server)] {
            if new.is_some() {
                *known = new;
            }
        }
    }

    /// Forgets what a call into rustls left that was not ours.
    pub(super) fn discard() {
        drop(TAPPED.take());
    }
}

/// Puts a tap before the log that is configured, which goes on to get what it wants.
pub(crate) fn install(log: &mut Arc<dyn KeyLog>) {
    let next = core::mem::replace(log, Arc::new(NoKeyLog));
    *log = Arc::new(Tap(next));
}

#[derive(Debug)]
struct Tap(Arc<dyn KeyLog>);

impl KeyLog for Tap {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if is_ours(label) {
            let mut tapped = TAPPED.take();
            let place = if label == CLIENT { &mut tapped.client } else { &mut tapped.server };
            *place = Secret::new(secret);
            TAPPED.set(tapped);
        }
        if self.0.will_log(label) {
            self.0.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        is_ours(label) || self.0.will_log(label)
    }
}

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

fn is_ours(label: &str) -> bool {
    label == CLIENT || label == SERVER
}

#[cfg(test)]
mod tests {
    use super::{CLIENT, SERVER, Tapped, install};
    use rustls::KeyLog;
    use std::sync::{Arc, Mutex};
    use tautline_tls_records::Suite::{Aes128Gcm, Aes256Gcm};

    /// A log that wants everything but the client's secret.
    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<(String, Vec<u8>)>>);

    impl KeyLog for Log {
        fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
            self.0.lock().unwrap().push((label.to_owned(), secret.to_owned()));
        }

        fn will_log(&self, label: &str) -> bool {
            label != CLIENT
        }
    }

    #[test]
    fn takes_both_secrets_and_passes_on_what_the_next_log_wants() {
        let next = Arc::new(Log::default());
        let mut log: Arc<dyn KeyLog> = Arc::clone(&next) as _;
        install(&mut log);
        assert!([CLIENT, SERVER, "EXPORTER_SECRET"].into_iter().all(|label| log.will_log(label)));
        log.log(CLIENT, &[0; 32], &[1; 32]);
        log.log(SERVER, &[0; 32], &[2; 48]);
        log.log("EXPORTER_SECRET", &[0; 32], &[3; 32]);
        let passed = next.0.lock().unwrap().clone();
        assert_eq!(passed, [(SERVER.to_owned(), vec![2; 48]), ("EXPORTER_SECRET".to_owned(), vec![3; 32])]);
        let mut tapped = Tapped::default();
        tapped.collect();
        assert_eq!(tapped.client.as_ref().unwrap().bytes(Aes128Gcm), [1; 32]);
        assert_eq!(tapped.server.as_ref().unwrap().bytes(Aes256Gcm), [2; 48]);
        tapped.collect();
        assert!(tapped.client.is_some(), "kept until there are others");
        let mut later = Tapped::default();
        later.collect();
        assert!(later.client.is_none() && later.server.is_none(), "they were taken");
    }

    #[test]
    fn forgets_what_nobody_took() {
        let mut log: Arc<dyn KeyLog> = Arc::new(rustls::NoKeyLog);
        install(&mut log);
        assert!(!log.will_log("EXPORTER_SECRET"));
        log.log(CLIENT, &[0; 32], &[1; 32]);
        Tapped::discard();
        let mut tapped = Tapped::default();
        tapped.collect();
        assert!(tapped.client.is_none());
    }
}
