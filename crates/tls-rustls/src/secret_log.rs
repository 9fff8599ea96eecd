//! Receives the traffic secrets and the exporter's, which rustls gives only to a key log.

use core::cell::Cell;
use rustls::{KeyLog, NoKeyLog};
use std::sync::Arc;
use tautline_tls_records::Secret;

thread_local! {
    /// The secrets that rustls derived on this thread since the last call. rustls logs inside our own call into it.
    static LOGGED: Cell<Secrets> = const { Cell::new(Secrets { client: None, server: None, exporter: None }) };
}

/// The first traffic secrets of both ends and the exporter's secret (RFC 8446, section 7.1), as far as they are known.
#[derive(Default)]
pub(crate) struct Secrets {
    pub(crate) client: Option<Secret>,
    pub(crate) server: Option<Secret>,
    exporter: Option<Secret>,
}

impl Secrets {
    /// Adds the traffic secrets that rustls derived on this thread since the last call.
    pub(crate) fn collect(&mut self) {
        let new = LOGGED.take();
        for (known, new) in [(&mut self.client, new.client), (&mut self.server, new.server)] {
            if new.is_some() {
                *known = new;
            }
        }
    }

    /// Takes the exporter's secret that rustls derived on this thread since the last call, and leaves the others.
    pub(crate) fn take_exporter() -> Option<Secret> {
        let mut logged = LOGGED.take();
        let exporter = logged.exporter.take();
        LOGGED.set(logged);
        exporter
    }

    /// Discards the secrets of a call into rustls that was not ours.
    pub(crate) fn discard() {
        drop(LOGGED.take());
    }
}

/// Puts a [`SecretLog`] before the configured log, which still receives the secrets that it wants.
///
/// It collects the `traffic` secrets, the `exporter`'s, or both. With neither, the log stays as it is.
pub(crate) fn install(log: &mut Arc<dyn KeyLog>, traffic: bool, exporter: bool) {
    if traffic || exporter {
        let next = core::mem::replace(log, Arc::new(NoKeyLog));
        *log = Arc::new(SecretLog { traffic, exporter, next });
    }
}

#[derive(Debug)]
struct SecretLog {
    traffic: bool,
    exporter: bool,
    next: Arc<dyn KeyLog>,
}

impl SecretLog {
    /// The place of a secret that is collected; `None` for others.
    fn place<'s>(&self, label: &str, secrets: &'s mut Secrets) -> Option<&'s mut Option<Secret>> {
        match label {
            CLIENT if self.traffic => Some(&mut secrets.client),
            SERVER if self.traffic => Some(&mut secrets.server),
            EXPORTER if self.exporter => Some(&mut secrets.exporter),
            _ => None,
        }
    }
}

impl KeyLog for SecretLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut secrets = LOGGED.take();
        if let Some(place) = self.place(label, &mut secrets) {
            *place = Secret::new(secret);
        }
        LOGGED.set(secrets);
        if self.next.will_log(label) {
            self.next.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        self.place(label, &mut Secrets::default()).is_some() || self.next.will_log(label)
    }
}

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";
const EXPORTER: &str = "EXPORTER_SECRET";

#[cfg(test)]
mod tests {
    use super::{CLIENT, EXPORTER, SERVER, Secrets, install};
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
        install(&mut log, true, false);
        assert!([CLIENT, SERVER, "EXPORTER_SECRET"].into_iter().all(|label| log.will_log(label)));
        log.log(CLIENT, &[0; 32], &[1; 32]);
        log.log(SERVER, &[0; 32], &[2; 48]);
        log.log("EXPORTER_SECRET", &[0; 32], &[3; 32]);
        let passed = next.0.lock().unwrap().clone();
        assert_eq!(passed, [(SERVER.to_owned(), vec![2; 48]), ("EXPORTER_SECRET".to_owned(), vec![3; 32])]);
        let mut secrets = Secrets::default();
        secrets.collect();
        assert_eq!(secrets.client.as_ref().unwrap().bytes(Aes128Gcm), [1; 32]);
        assert_eq!(secrets.server.as_ref().unwrap().bytes(Aes256Gcm), [2; 48]);
        secrets.collect();
        assert!(secrets.client.is_some(), "secrets stay until newer ones come");
        let mut later = Secrets::default();
        later.collect();
        assert!(later.client.is_none() && later.server.is_none(), "the first call took them");
    }

    #[test]
    fn collects_the_exporters_secret_where_it_is_wanted() {
        let mut log: Arc<dyn KeyLog> = Arc::new(rustls::NoKeyLog);
        install(&mut log, false, true);
        assert!(log.will_log(EXPORTER) && !log.will_log(CLIENT));
        log.log(CLIENT, &[0; 32], &[1; 32]);
        log.log(EXPORTER, &[0; 32], &[3; 32]);
        assert_eq!(Secrets::take_exporter().unwrap().bytes(Aes128Gcm), [3; 32]);
        let mut secrets = Secrets::default();
        secrets.collect();
        assert!(secrets.client.is_none() && Secrets::take_exporter().is_none());
    }

    #[test]
    fn discard_drops_secrets_that_were_not_collected() {
        let mut log: Arc<dyn KeyLog> = Arc::new(rustls::NoKeyLog);
        install(&mut log, true, false);
        assert!(!log.will_log("EXPORTER_SECRET"));
        log.log(CLIENT, &[0; 32], &[1; 32]);
        Secrets::discard();
        let mut secrets = Secrets::default();
        secrets.collect();
        assert!(secrets.client.is_none());
    }
}
