//! Times of a message's stages, from the network card to the handler.

mod case;
mod compositions;
mod cost;
mod report;

use super::namespaces::{self, Namespaces};
use super::row::measure_tolerant;
use super::{Certificates, Key, Kind, Lab, Outcome, Process, Site, Traffic};
use crate::cpu::timed;
use crate::load;
use crate::records::Work;
use crate::rounds::Plan;
use crate::{DriverKind, Error};
use case::{Available, Place, SIZE, STEADY, StageTimes, cases};
use report::{Floor, report};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tautline::layers::io::kernel;
use tautline::layers::tls_records::Suite as CipherSuite;
use tautline::layers::tls_records::aead::{self, Direction};

/// Messages before the first counted one.
const WARM_UP: u64 = 100;

/// Share of the suite after which the cost of the probe is measured.
const COST_FROM: f64 = 0.8;

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    // A quick run has five short rounds, so that a disturbance of one does not reach the median.
    let (messages, rounds) = lab.effort.pick((10_000, 3), (2_000, 5), (300, 1));
    let certificates = Certificates::new(&[Key::P256])?;
    let namespaces = Namespaces::new();
    let mut servers = Vec::new();
    for traffic in [Traffic::Market, STEADY] {
        let kind = Kind::Feed(traffic, DriverKind::Epoll);
        servers.push((traffic, Place::Loopback, Process::start(lab, kind, &certificates, None)?));
        if let Ok(namespaces) = &namespaces {
            let site = Site { command: namespaces.command(), address: namespaces::SERVER };
            servers.push((traffic, Place::Veth, Process::start(lab, kind, &certificates, Some(site))?));
        }
    }
    let available = Available {
        veth: namespaces.as_ref().map(drop).map_err(Clone::clone),
        kernel_tls: kernel::probe().map(drop).map_err(|error| error.to_string()),
    };
    let mut skipped = Vec::new();
    let drivers = lab.has_chosen_drivers.then_some(lab.drivers.as_slice());
    let mut rows = cases(lab.effort, drivers, &available, &mut skipped);
    let plan = Plan { rounds, least_rounds: rounds, budget: None };
    measure_tolerant(lab, &mut rows, &plan, 0.0..COST_FROM, |_, case, _| {
        let process = servers.iter().find(|(traffic, place, _)| (*traffic, *place) == (case.traffic, case.place));
        let Some((.., process)) = process else { return Ok(Vec::new()) };
        let mut server = process.server()?;
        (server.engine, server.driver) = (case.engine, case.driver.clone());
        let feed = load::Feed { server, warm_up: WARM_UP, messages };
        let receive = || feed.run(&mut |_| {});
        let stages = match (&namespaces, case.place) {
            (Ok(namespaces), Place::Veth) => namespaces.at_client(receive),
            _ => receive(),
        }?;
        case.rounds.push(StageTimes::of(&stages));
        Ok(Vec::new())
    })?;
    let is_stopped = lab.stop.load(Ordering::Relaxed);
    if !is_stopped
        && rows.iter().all(|row| row.subject.rounds.is_empty())
        && let Some(error) = rows.iter_mut().find_map(|row| row.failed.take())
    {
        return Err(error);
    }
    skipped.extend(rows.iter().filter_map(|row| row.failed.as_ref()).map(Error::to_string));
    let provider = aead::chosen(CipherSuite::Aes128Gcm, SIZE as usize, Direction::Open);
    let aead = Work::aead(provider, SIZE as usize)?.measure(Duration::from_millis(5))? / 2.0;
    let floor = Floor { call: empty_call()?, aead };
    drop(servers);
    let costs = cost::measure(lab, &certificates, COST_FROM..1.0)?;
    report(outcome, &rows, &skipped, &costs, &floor, messages);
    Ok(())
}

/// CPU time of a receive that finds nothing, in us.
fn empty_call() -> Result<f64, Error> {
    const CALLS: u32 = 2_000;
    let failed = |error| Error::Failed(format!("cannot connect to this process: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let mut stream = listener.local_addr().and_then(TcpStream::connect).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    let (took, ()) = timed(|| {
        for _ in 0..CALLS {
            // It would block, which is the measured case.
            let _ = stream.read(&mut [0; 64]);
        }
        Ok(())
    })?;
    Ok(took.as_secs_f64() * 1e6 / f64::from(CALLS))
}
