use super::aead::Aead;
use super::batch::Batch;
use super::path::Path;
use crate::Error;
use crate::cpu::time_per_item;
use std::time::Duration;
use tautline::layers::tls_records::aead::Provider;
use tautline::{EngineChoice as _, EngineKind, Then, TlsEngine};
use tautline_measure::engine::localhost;

/// Work to measure, prepared with everything that it needs.
pub(crate) struct Work(Box<dyn Batch>);

impl Work {
    /// Echo of messages of `size` bytes by the engine of this name, over TLS 1.3 with AES-128-GCM.
    pub(crate) fn echo(engine: &str, size: usize) -> Result<Self, Error> {
        engine.parse::<TlsEngine>().map_err(Error::Usage)?.choose(Echo { size })
    }

    /// A provider's AEAD alone for messages of `size` bytes: records of at most 16 KiB, each sealed once and opened once.
    pub(crate) fn aead(provider: Provider, size: usize) -> Result<Self, Error> {
        Ok(Self(Box::new(Aead::new(provider, size)?)))
    }

    /// CPU time of one message in us, over at least `least` of CPU time.
    pub(crate) fn measure(&mut self, least: Duration) -> Result<f64, Error> {
        // The first batch meets cold caches and small buffers.
        self.0.run()?;
        Ok(time_per_item(least, || self.0.run())?.0)
    }
}

/// An echo before its engine is known.
struct Echo {
    size: usize,
}

impl Then for Echo {
    type Output = Result<Work, Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let (server, client) = localhost()?;
        let (client, server) =
            (kind.client(&client).map_err(Error::usage)?, kind.server(&server).map_err(Error::usage)?);
        Ok(Work(Box::new(Path::new(&client, &server, self.size)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_takes_time_and_checks_its_messages() {
        for size in [1, 64, 4096, 16_384, 70_000] {
            let aeads = Provider::ALL.map(|provider| Work::aead(provider, size));
            for mut work in [Work::echo("fused", size), Work::echo("rustls", size)]
                .into_iter()
                .chain(aeads)
                .map(|work| work.unwrap_or_else(|error| panic!("{size}: {error}")))
            {
                let us = work.measure(Duration::from_millis(1)).unwrap();
                assert!(us > 0.01 && us < 1e5, "{size}: {us}");
            }
        }
    }

    #[test]
    fn refuses_an_unknown_engine() {
        assert!(matches!(Work::echo("none", 64), Err(Error::Usage(_))));
    }
}
