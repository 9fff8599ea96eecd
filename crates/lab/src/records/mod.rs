//! What the record path costs without sockets: messages go from ciphertext to ciphertext in memory.
//!
//! [`Work::echo`] is everything a server does for an echoed message but its system calls, its loop and its handler: open
//! the record, parse and unmask the frame, frame the answer, seal it. [`Work::aead`] is what of that cannot be saved: one
//! call of the same AEAD to open as many bytes and one to seal them, of AWS-LC, in place. Both run on hot memory: a batch
//! of messages fits the second-level cache.

mod aead;
mod path;

use crate::Error;
use crate::cpu::thread_time;
use aead::Aead;
use path::Path;
use std::time::Duration;
use tautline::layers::tls::Engine;
use tautline::layers::tls_rustls::{self, fused};
use tautline::{ClientConfig, Roots, ServerConfig};
use tautline_testkit::certificate::{Authority, Leaf};

/// Bytes of payload in a batch, within these numbers of messages.
const BATCH: usize = 64 << 10;
const MESSAGES: [usize; 2] = [16, 512];

/// Something to measure, with all it needs made.
pub struct Work(Box<dyn Batch>);

/// Messages that are timed together, because one is too short for a clock.
trait Batch {
    /// Does them; returns the CPU time of what is measured, and how many they were.
    fn run(&mut self) -> Result<(Duration, usize), Error>;
}

impl Work {
    /// Echo of messages of `size` bytes by an engine, `fused` or `rustls`, over TLS 1.3 with AES-128-GCM.
    ///
    /// # Errors
    /// There is no such engine, or it agreed on another cipher.
    pub fn echo(engine: &str, size: usize) -> Result<Self, Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Failed(format!("records: {error}"));
        let authority = Authority::new("records").map_err(|error| failed(&error))?;
        let certificate =
            authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).map_err(|error| failed(&error))?;
        let server = ServerConfig { certificates: vec![certificate], ..ServerConfig::default() };
        let roots = Roots::Pem(authority.certificate().as_bytes().to_vec());
        let client = ClientConfig { roots, ..ClientConfig::default() };
        match engine {
            "fused" => Self::of(
                &fused::Engine::client(&client).map_err(|error| failed(&error))?,
                &fused::Engine::server(&server).map_err(|error| failed(&error))?,
                size,
            ),
            "rustls" => Self::of(
                &tls_rustls::Engine::client(&client).map_err(|error| failed(&error))?,
                &tls_rustls::Engine::server(&server).map_err(|error| failed(&error))?,
                size,
            ),
            name => Self::other(name, &server, &client, size),
        }
    }

    /// By an engine that not every build has.
    fn other(name: &str, server: &ServerConfig, client: &ClientConfig, size: usize) -> Result<Self, Error> {
        #[cfg(feature = "libssl")]
        if let Some(tautline::TlsEngine::Libssl(flavour)) = tautline::TlsEngine::all().find(|one| one.name() == name) {
            use tautline::layers::tls_libssl::Engine;
            let engine = Engine::new(flavour, Some(server), Some(client))
                .map_err(|error| Error::Failed(format!("records: {error}")))?;
            return Self::of(&engine, &engine, size);
        }
        let _ = (server, client, size);
        Err(Error::Usage(format!("there is no TLS engine {name}")))
    }

    fn of<E: Engine>(client: &E, server: &E, size: usize) -> Result<Self, Error> {
        Ok(Self(Box::new(Path::new(client, server, size)?)))
    }

    /// The AEAD alone for messages of `size` bytes: records of at most 16 KiB, each sealed once and opened once.
    ///
    /// # Errors
    /// The library refuses the key.
    pub fn aead(size: usize) -> Result<Self, Error> {
        Ok(Self(Box::new(Aead::new(size)?)))
    }

    /// CPU time of one message in us, over `least` of CPU time in all.
    ///
    /// # Errors
    /// What came out was not what went in.
    pub fn measure(&mut self, least: Duration) -> Result<f64, Error> {
        // The first batch finds cold caches and small buffers.
        self.0.run()?;
        let (mut total, mut messages) = (Duration::ZERO, 0);
        // A clock that stands still must not make this endless: many short batches are as good as long ones.
        while total < least && messages < 1 << 30 {
            let (took, count) = self.0.run()?;
            total += took;
            messages += count;
        }
        Ok(total.as_secs_f64() * 1e6 / messages as f64)
    }
}

/// Messages of `size` bytes in a batch.
fn batch(size: usize) -> usize {
    (BATCH / size.max(1)).clamp(MESSAGES[0], MESSAGES[1])
}

/// CPU time of `work` on this thread.
fn timed<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<(Duration, T), Error> {
    let began = thread_time();
    let done = work()?;
    Ok((thread_time().saturating_sub(began), done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_takes_time_and_gives_back_what_it_got() {
        for size in [1, 64, 4096, 16_384, 70_000] {
            for mut work in [Work::echo("fused", size), Work::echo("rustls", size), Work::aead(size)]
                .map(|work| work.unwrap_or_else(|error| panic!("{size}: {error}")))
            {
                let us = work.measure(Duration::from_millis(1)).unwrap();
                assert!(us > 0.01 && us < 1e5, "{size}: {us}");
            }
        }
    }

    #[test]
    fn batches_are_long_enough_to_time_and_small_enough_to_stay_in_the_cache() {
        assert_eq!([0, 64, 1024, 16_384, 1 << 20].map(batch), [512, 512, 64, 16, 16]);
    }

    #[test]
    fn an_unknown_engine_is_an_error() {
        assert!(matches!(Work::echo("none", 64), Err(Error::Usage(_))));
    }
}
