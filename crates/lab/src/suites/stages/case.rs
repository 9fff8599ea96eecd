use super::super::Effort;
use super::super::{Row, Subject, Traffic};
use super::compositions::{self, Composition, Transport};
use crate::{Case, DriverKind, Protocol};
use tautline::{DriverConfig, Spread, Stage, Stages, TlsEngine};
use tautline_measure::named;

/// Traffic of the targets: messages of 200 bytes, each in its own record.
pub(super) const STEADY: Traffic = Traffic::Steady { size: SIZE, rate: 10_000 };
pub(super) const SIZE: u32 = 200;

named! {
    /// Network between server and client.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Place {
        Loopback = "loopback",
        Veth = "veth",
    }
}

/// A composition that works on this machine, with its traffic.
pub(super) struct StageCase {
    pub(super) composition: Composition,
    pub(super) place: Place,
    pub(super) traffic: Traffic,
    pub(super) engine: TlsEngine,
    pub(super) driver: DriverConfig,
    pub(super) rounds: Vec<StageTimes>,
}

/// Times of one round.
pub(super) struct StageTimes {
    /// In the order of [`Stage::ALL`].
    spreads: [Spread; 8],
    pub(super) tls_share: f64,
    pub(super) per_read: (f64, u64),
    pub(super) per_record: (f64, u64),
    pub(super) clock: String,
}

/// Facilities of this machine, or why they are missing.
pub(super) struct Available {
    pub(super) veth: Result<(), String>,
    pub(super) kernel_tls: Result<(), String>,
}

/// All cases that work here, or those over the chosen `drivers`. Reasons for the missing ones go to `skipped`.
pub(super) fn cases(
    effort: Effort,
    drivers: Option<&[DriverKind]>,
    available: &Available,
    skipped: &mut Vec<String>,
) -> Vec<Row<StageCase>> {
    let mut rows = Vec::new();
    if let Err(why) = &available.veth {
        skipped.push(format!("everything over veth: {why}"));
    }
    for composition in compositions::all() {
        if drivers.is_some_and(|drivers| !composition.transport.is_one_of(drivers)) {
            skipped.push(format!("{}: --driver leaves it out", composition.name()));
            continue;
        }
        let kernel_tls = available.kernel_tls.as_ref().copied().map_err(String::as_str);
        let made =
            composition.engine(kernel_tls).and_then(|engine| composition.driver().map(|driver| (engine, driver)));
        let (engine, driver) = match made {
            Ok(made) => made,
            Err(why) => {
                skipped.push(format!("{}: {why}", composition.name()));
                continue;
            }
        };
        // A smoke run needs only our default and one of the report's compositions.
        if effort == Effort::Smoke && !matches!(composition.mode, None | Some(9)) {
            skipped.push(format!("{}: this run is too short for it", composition.name()));
            continue;
        }
        for place in Place::ALL {
            let is_possible = match place {
                Place::Loopback => !matches!(composition.transport, Transport::Xdp { .. }),
                Place::Veth => available.veth.is_ok(),
            };
            let traffics: &[Traffic] =
                if composition.mode.is_none() { &[Traffic::Market, STEADY] } else { &[Traffic::Market] };
            rows.extend(traffics.iter().filter(|_| is_possible).map(|&traffic| {
                Row::new(StageCase { composition, place, traffic, engine, driver: driver.clone(), rounds: Vec::new() })
            }));
        }
    }
    rows
}

impl StageCase {
    /// `fused epoll`, or `fused epoll 200 B` if all messages have one size.
    pub(super) fn short_name(&self) -> String {
        match self.traffic {
            Traffic::Market => self.composition.name(),
            Traffic::Steady { size, .. } => format!("{} {size} B", self.composition.name()),
        }
    }

    /// One value for each round.
    pub(super) fn runs(&self, value: impl Fn(&StageTimes) -> f64) -> Vec<f64> {
        self.rounds.iter().map(value).collect()
    }

    /// Whether a stage was timed in any round.
    pub(super) fn has(&self, stage: Stage) -> bool {
        self.rounds.iter().any(|round| round.spread(stage).count > 0)
    }
}

impl Subject for StageCase {
    fn name(&self) -> String {
        format!("{} over {}", self.short_name(), self.place.name())
    }

    fn case(&self) -> Case {
        let Composition { mode, transport, tls } = self.composition;
        let place = self.place.name();
        let (size, setup) = match (self.traffic, mode) {
            (Traffic::Steady { size, .. }, _) => (Some(size as usize), format!("steady over {place}")),
            (Traffic::Market, None) => (None, format!("market over {place}")),
            (Traffic::Market, Some(mode)) => (None, format!("market over {place}, mode {mode}")),
        };
        let case = Case::default().protocol(Protocol::Wss).tls(tls).driver(transport.name()).size(size);
        case.connections(1).direction("read").transport(transport.stack()).setup(setup.as_str())
    }
}

impl StageTimes {
    pub(super) fn of(stages: &Stages) -> Self {
        Self {
            spreads: Stage::ALL.map(|stage| stages.spread(stage)),
            tls_share: stages.tls_share(),
            per_read: stages.per_read(),
            per_record: stages.per_record(),
            clock: stages.clock(),
        }
    }

    /// Times of a stage. Without stamps of arrivals, the total begins at the end of the loop's wait.
    pub(super) const fn spread(&self, stage: Stage) -> Spread {
        match stage {
            Stage::Total if self.spreads[Stage::Total as usize].count == 0 => self.spreads[Stage::App as usize],
            stage => self.spreads[stage as usize],
        }
    }

    /// Whether arrivals were stamped.
    pub(super) const fn has_arrivals(&self) -> bool {
        self.spread(Stage::Nic).count > 0
    }
}

#[cfg(test)]
impl StageTimes {
    pub(super) fn new(spreads: [Spread; 8], clock: &str) -> Self {
        let clock = clock.to_owned();
        Self { spreads, tls_share: 0.5, per_read: (1.53, 40), per_record: (1.2, 33), clock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_tls_adds_compositions_that_its_drivers_support() {
        let none = || Err("none here".to_owned());
        for kernel_tls in [Ok(()), none()] {
            let mut skipped = Vec::new();
            let is_there = kernel_tls.is_ok();
            let rows = cases(Effort::Quick, None, &Available { veth: none(), kernel_tls }, &mut skipped);
            let modes: Vec<_> = rows.iter().filter_map(|row| row.subject.composition.mode).collect();
            assert_eq!(modes.contains(&4), is_there, "{modes:?}");
            assert_eq!(modes.contains(&5), is_there, "{modes:?}");
            let why = skipped.iter().find_map(|why| why.strip_prefix("5. ktls select: "));
            assert_eq!(why, if is_there { None } else { Some("none here") });
        }
    }
    #[test]
    fn chosen_drivers_leave_out_all_others() {
        let available = Available { veth: Err("none here".to_owned()), kernel_tls: Ok(()) };
        let (mut skipped, chosen) = (Vec::new(), [DriverKind::Select]);
        let rows = cases(Effort::Quick, Some(&chosen), &available, &mut skipped);
        let on_select = |row: &Row<StageCase>| row.subject.composition.transport == Transport::Kernel(chosen[0]);
        assert!(!rows.is_empty() && rows.iter().all(on_select));
        assert!(skipped.contains(&"fused epoll: --driver leaves it out".to_owned()), "{skipped:?}");
        assert!(skipped.contains(&"1. wolfssl xdp-spin: --driver leaves it out".to_owned()), "{skipped:?}");
    }
}
