//! Receives the traffic secrets, which rustls gives only to a key log.

use core::cell::Cell;
use rustls::{KeyLog, NoKeyLog};
use std::sync::Arc;
use tautline_tls_records::Secret;

thread_local! {
    /// The secrets that rustls derived on this thread since the last call. rustls logs inside our own call into it.
    static LOGGED: Cell<TrafficSecrets> = const { Cell::new(TrafficSecrets { client: None, server: None }) };
}

/// The first traffic secrets of both ends (RFC 8446, section 7.1), as far as they are known.
#[derive(Default)]
pub(crate) struct TrafficSecrets {
    pub(crate) client: Option<Secret>,
    pub(crate) server: Option<Secret>,
}

impl TrafficSecrets {
    /// Adds the secrets that rustls derived on this thread since the last call.
    pub(crate) fn collect(&mut self) {
        let new = LOGGED.take();
        for (known, new) in [(&mut self.client, new.client), (&mut self.server, new.server)] {
            if new.is_some() {
                *known = new;
            }
        }
    }

    /// Discards the secrets of a call into rustls that was not ours.
    pub(crate) fn discard() {
        drop(LOGGED.take());
    }
}

/// Puts a [`SecretLog`] before the configured log, which still receives the secrets that it wants.
pub(crate) fn install(log: &mut Arc<dyn KeyLog>) {
    let next = core::mem::replace(log, Arc::new(NoKeyLog));
    *log = Arc::new(SecretLog(next));
}

#[derive(Debug)]
struct SecretLog(Arc<dyn KeyLog>);

impl KeyLog for SecretLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if is_ours(label) {
            let mut secrets = LOGGED.take();
            let place = if label == CLIENT { &mut secrets.client } else { &mut secrets.server };
            *place = Secret::new(secret);
            LOGGED.set(secrets);
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
    use super::{CLIENT, SERVER, TrafficSecrets, install};
    use rustls::KeyLog;
    use std::sync::{Arc, Mutex};
    use tautline_tls_records::Suite::{Aes128Gcm, Aes256Gcm};

    /// A log that wants every secret except the client's.
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
    fn collects_both_secrets_and_forwards_to_the_next_log() {
        let next = Arc::new(Log::default());
        let mut log: Arc<dyn KeyLog> = Arc::clone(&next) as _;
        install(&mut log);
        assert!([CLIENT, SERVER, "EXPORTER_SECRET"].into_iter().all(|label| log.will_log(label)));
        log.log(CLIENT, &[0; 32], &[1; 32]);
        log.log(SERVER, &[0; 32], &[2; 48]);
        log.log("EXPORTER_SECRET", &[0; 32], &[3; 32]);
        let passed = next.0.lock().unwrap().clone();
        assert_eq!(passed, [(SERVER.to_owned(), vec![2; 48]), ("EXPORTER_SECRET".to_owned(), vec![3; 32])]);
        let mut secrets = TrafficSecrets::default();
        secrets.collect();
        assert_eq!(secrets.client.as_ref().unwrap().bytes(Aes128Gcm), [1; 32]);
        assert_eq!(secrets.server.as_ref().unwrap().bytes(Aes256Gcm), [2; 48]);
        secrets.collect();
        assert!(secrets.client.is_some(), "secrets stay until newer ones come");
        let mut later = TrafficSecrets::default();
        later.collect();
        assert!(later.client.is_none() && later.server.is_none(), "the first call took them");
    }

    #[test]
    fn discard_drops_secrets_that_were_not_collected() {
        let mut log: Arc<dyn KeyLog> = Arc::new(rustls::NoKeyLog);
        install(&mut log);
        assert!(!log.will_log("EXPORTER_SECRET"));
        log.log(CLIENT, &[0; 32], &[1; 32]);
        TrafficSecrets::discard();
        let mut secrets = TrafficSecrets::default();
        secrets.collect();
        assert!(secrets.client.is_none());
    }
}
