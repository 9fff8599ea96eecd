//! The hub on one process and on three, which share topics by a broker, beside Centrifugo.

mod case;
mod program;
mod report;

use super::guest::{Guest, Installed};
use super::{Certificates, Effort, Kind, Lab, Metrics, Outcome, Process, row};
use crate::load::{self, Audience, Dialect, Fleet, FleetPlan};
use crate::rounds::Plan;
use crate::{Error, Measured, Metric};
use case::{Broker, FleetCase, RATE, ROOM, Who, rows};
use program::Program;
use std::path::PathBuf;
use std::time::Duration;

/// Time for all rounds.
const BUDGET: Duration = Duration::from_secs(1_200);

/// The brokers that this build has a client of.
const BROKERS: [(Broker, Program, bool); 2] = [
    (Broker::Nats, Program::NatsServer, cfg!(feature = "nats")),
    (Broker::Redis, Program::RedisServer, cfg!(feature = "redis")),
];

/// The parts that all fleets share.
struct Site {
    certificates: Certificates,
    folder: PathBuf,
    brokers: Vec<(Broker, Guest)>,
    centrifugo: Option<Installed<Program>>,
    /// The number of fleets so far, for the names of topics.
    fleets: usize,
}

/// A process of a fleet.
enum Live {
    Ours(Process),
    Other(Guest),
}

impl Live {
    fn server(&self) -> Result<load::Server, Error> {
        match self {
            Self::Ours(process) => process.server(),
            Self::Other(guest) => program::server(guest),
        }
    }
}

pub(super) fn run(lab: &mut Lab<'_>, outcome: &mut Outcome) -> Result<(), Error> {
    let certificates = Certificates::new(&[])?;
    let folder = certificates.folder().join("fleet");
    std::fs::create_dir(&folder).map_err(|error| Error::Failed(format!("{}: {error}", folder.display())))?;
    let mut site = Site { certificates, folder, brokers: Vec::new(), centrifugo: None, fleets: 0 };
    let versions = prepare(lab, outcome, &mut site);
    let everyone: Vec<Who> =
        Who::ALL.into_iter().filter(|who| *who == Who::Ours || site.centrifugo.is_some()).collect();
    let mut brokers: Vec<Broker> = site.brokers.iter().map(|(broker, _)| *broker).collect();
    if brokers.is_empty() {
        brokers.push(Broker::None);
    }
    let mut rows = rows(lab.effort, &everyone, &brokers);
    let plan = Plan { rounds: 1, least_rounds: 1, budget: Some(BUDGET) };
    row::measure_tolerant(lab, &mut rows, &plan, 0.0..1.0, |lab, case, _| measure(lab, &mut site, case))?;
    report::report(outcome, &rows, &versions);
    Ok(())
}

/// Starts the brokers. Programs that are missing are named, and so are features. Returns the versions. A smoke run has no program
/// of others.
fn prepare(lab: &mut Lab<'_>, outcome: &mut Outcome, site: &mut Site) -> Vec<String> {
    let mut versions = Vec::new();
    if lab.effort == Effort::Smoke {
        return versions;
    }
    for (broker, program, is_built_in) in BROKERS {
        if !is_built_in {
            let name = broker.name();
            outcome.warnings.push(format!("not on {name}: build taut with the feature `{name}` (--features {name})"));
            continue;
        }
        (lab.progress)(0.0, &format!("looking for {}", program.name()));
        let started = program.find().and_then(|installed| {
            let guest = installed.start_broker(lab, &site.folder).map_err(|error| error.to_string())?;
            Ok((installed.title(), guest))
        });
        match started {
            Ok((title, guest)) => {
                site.brokers.push((broker, guest));
                versions.push(title);
            }
            Err(why) => outcome.warnings.push(format!("{} is missing: {why}", program.name())),
        }
    }
    (lab.progress)(0.0, "looking for centrifugo, which takes minutes the first time");
    match Program::Centrifugo.find() {
        Ok(installed) => {
            versions.push(installed.title());
            site.centrifugo = Some(installed);
        }
        Err(why) => outcome.warnings.push(format!("centrifugo is missing: {why}")),
    }
    versions
}

impl Site {
    /// Starts a process.
    fn start(&self, lab: &Lab<'_>, case: &FleetCase) -> Result<Live, Error> {
        let broker = case.shape.broker;
        let at = self.brokers.iter().find(|(of, _)| *of == broker).map(|(_, guest)| guest.address);
        match case.who {
            Who::Ours => {
                let url = at.map(|at| format!("{}://{at}", broker.name()));
                let mut arguments = vec!["--app", "hub"];
                arguments.extend(url.iter().flat_map(|url| ["--broker", url]));
                let kind = Kind::Ws(lab.drivers[0]);
                Ok(Live::Ours(Process::start_with(lab, kind, &self.certificates, None, &arguments)?))
            }
            Who::Centrifugo => {
                let installed = self.centrifugo.as_ref();
                let installed = installed.ok_or_else(|| Error::Failed("centrifugo is missing".to_owned()))?;
                Ok(Live::Other(installed.start_centrifugo(lab, &self.folder, (broker, at))?))
            }
        }
    }
}

/// Measures a fleet of new processes, because old ones have memory to reuse.
fn measure(lab: &Lab<'_>, site: &mut Site, case: &mut FleetCase) -> Result<Metrics, Error> {
    let (shape, who) = (case.shape, case.who);
    let live: Vec<Live> = (0..shape.processes).map(|_| site.start(lab, case)).collect::<Result<_, _>>()?;
    let servers: Vec<load::Server> = live.iter().map(Live::server).collect::<Result<_, _>>()?;
    site.fleets += 1;
    // Both have history in topics with this begin.
    let prefix = format!("{}{}-", if shape.history { "log:" } else { "" }, site.fleets);
    let dialect = if who == Who::Ours { Dialect::Hub } else { Dialect::Centrifugo };
    let room = ROOM.min(shape.subscribers / 2);
    let plan = FleetPlan { dialect, servers: &servers, subscribers: shape.subscribers, room, prefix: &prefix };
    let mut fleet = Fleet::open(&plan)?;
    let (rounds, seconds) = lab.effort.pick((3, 2.0), (3, 1.0), (1, 0.2));
    let mut metrics = Metrics::new();
    for audience in [Audience::Rooms, Audience::Everyone] {
        let receivers = if audience == Audience::Rooms { room } else { shape.subscribers };
        let rate = RATE as f64 / receivers as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of messages")]
        let messages = ((rate * seconds) as usize).max(3);
        for _ in 0..rounds {
            let measured = fleet.publish(audience, rate, messages)?;
            match audience {
                Audience::Rooms => metrics.extend(figures(&measured)),
                Audience::Everyone => row::add(&mut case.everyone, figures(&measured)),
            }
        }
        if audience == Audience::Rooms {
            metrics.push((Metric::RssPerConnection, fleet.memory()?));
            fleet.gather()?;
        }
    }
    fleet.close()?;
    Ok(metrics)
}

/// Deliveries, their latencies, and CPU time of all servers for each.
fn figures(measured: &Measured) -> Metrics {
    let mut metrics = vec![(Metric::Throughput, measured.rate())];
    metrics.extend(measured.latencies.metrics());
    metrics.extend(measured.server_cpu_each_us().map(|us| (Metric::ServerCpuPerMsg, us)));
    metrics
}
