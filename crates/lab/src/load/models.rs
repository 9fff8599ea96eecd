//! Loads against the replicas of other threading models.

use super::{Echo, Server, Sink};
use crate::Span;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::time::Duration;
use tautline::{Records, Roots, ServerConfig, TlsEngine};
use tautline_dev_cert::{Authority, Leaf};
use tautline_replicas::models::{Baseline, Model};

/// Starts a server that runs until the tests end; returns its addresses and how to reach it.
fn start(model: Model, tls: TlsEngine, is_source: bool) -> (Vec<SocketAddr>, Server) {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["127.0.0.1"])).unwrap();
    let config = ServerConfig::new([certificate]);
    let (started, addresses) = channel();
    std::thread::spawn(move || {
        let records = (tls == TlsEngine::Fused).then_some(Records::default().with_min_message(100_000).with_threads(1));
        let baseline = Baseline { model, threads: 2, is_source, tls, config, records, cpus: Vec::new() };
        baseline.serve(([127, 0, 0, 1], 0).into(), |addresses| started.send(addresses.to_vec()).unwrap()).unwrap();
    });
    let addresses = addresses.recv().unwrap();
    let mut server = Server::new(&format!("wss://{}/", addresses[0])).unwrap();
    server.tls.roots = Roots::Pem(authority.certificate().into());
    (addresses, server)
}

#[test]
fn every_model_echoes() {
    for model in Model::ALL {
        for tls in TlsEngine::all() {
            let (_, server) = start(model, tls, false);
            for (size, connections, pipeline) in [(0, 1, 1), (64, 20, 4), (20_000, 3, 2), (300_000, 2, 1)] {
                // A large message takes long on a busy machine.
                let answers = [30, 300, 3_000].into_iter().any(|millis| {
                    // Every reply is compared with its message.
                    let small = Echo::small(server.clone(), connections, None, Span::millis(0, millis));
                    let echo = Echo { size, pipeline, ..small };
                    let measured = echo.run(&mut |_| {});
                    measured.unwrap_or_else(|error| panic!("{model} {tls} {size}: {error}")).count > 0
                });
                assert!(answers, "{model} {tls} {size}");
            }
        }
    }
}

#[test]
fn every_model_answers_in_bulk() {
    for model in Model::ALL {
        let (addresses, server) = start(model, TlsEngine::Fused, true);
        assert_eq!(addresses.len(), if model == Model::LoopPerCore { 2 } else { 1 });
        for interval in [None, Some(Duration::from_micros(50))] {
            let answers = [200, 5_000].into_iter().any(|millis| {
                let sink = Sink {
                    server: server.clone(),
                    addresses: addresses.clone(),
                    connections: 5,
                    size: 300_000,
                    interval,
                    span: Span::millis(0, millis),
                };
                sink.run().unwrap().count > 0
            });
            assert!(answers, "{model}, {interval:?}");
        }
    }
}

#[test]
fn models_have_names() {
    for model in Model::ALL {
        assert_eq!(model.name().parse(), Ok(model));
    }
    assert!("actors".parse::<Model>().is_err());
}
