//! The table and the targets of the suite.

use super::super::check::{self, Check};
use super::super::echo_case::Shape;
use super::super::guest::Installed;
use super::super::row::least;
use super::super::running::BODY;
use super::super::{Outcome, Subject as _, unique};
use super::case::{Http2Row, IN_FLIGHT, Over, SHARED, Who, Work, everyone};
use super::program::Program;
use crate::rounds::Runs as _;
use crate::table::{Table, bytes, optional};
use crate::{Metric, Target};

const SMALL: Shape = Shape::of(64);
const LARGE: Shape = Shape::of(65_536);
const ONE: Over = Over::Http2(1);
const TEN: Over = Over::Http2(SHARED);

/// Greatest ratios of HTTP/2 to HTTP/1.1 with as many WebSockets.
const ECHOES: [(Shape, Over, f64); 3] = [(SMALL, ONE, 1.3), (SMALL, TEN, 0.6), (LARGE, ONE, 1.3)];

/// Bytes that a connection with one WebSocket may take above HTTP/1.1's, and a further stream.
const CONNECTION: f64 = 4096.0;
const STREAM: f64 = 2048.0;

pub(super) fn report(outcome: &mut Outcome, rows: &[Http2Row], installed: &[Installed<Program>]) {
    rows.iter().for_each(|row| outcome.add_row(row));
    outcome.text = format!(
        "HTTP/2: h1 is HTTP/1.1, x1 a connection for each WebSocket, x{SHARED} ten WebSockets on each.\n\
         us: CPU of the server for a message and its echo, {} WebSockets, one in flight on each; GET: for a\n\
         response of {}, {IN_FLIGHT} in flight on one connection.\n\
         B: memory of an idle WebSocket with its connection, after one echo; stream: of a further one.\n\n{}",
        SMALL.connections,
        bytes(BODY as u64),
        table(rows)
    );
    if !installed.is_empty() {
        let versions: Vec<_> = installed.iter().map(Installed::title).collect();
        outcome.text += &format!("\nBeside: {}.\n", versions.join(", "));
    }
    outcome.warn_if_noisy(rows, |case| case.work.judged());
    check::report(outcome, checks(rows));
}

fn table(rows: &[Http2Row]) -> Table {
    // HTTP/1.1 of ours is another process, and one line shows both.
    let names = unique(everyone(rows).into_iter().map(Who::name));
    let idle = idle_connections(rows);
    Table::of(names.into_iter().map(|name| {
        let row = |work: Work| rows.iter().find(|row| row.subject.work == work && row.subject.who.name() == name);
        let of = |work: Work| optional(row(work).and_then(|row| row.median(work.judged())));
        let memory = |over| idle.map_or_else(|| optional(None), |idle| of(Work::Idle(idle, over)));
        let further = idle
            .and_then(|idle| further_stream(row(Work::Idle(idle, ONE))?, row(Work::Idle(idle, TEN))?).first().copied());
        [
            ("<server", name.clone()),
            ("64 B h1", of(Work::Echo(SMALL, Over::Http1))),
            ("x1", of(Work::Echo(SMALL, ONE))),
            ("x10", of(Work::Echo(SMALL, TEN))),
            ("64 KiB h1", of(Work::Echo(LARGE, Over::Http1))),
            ("64 KiB x1", of(Work::Echo(LARGE, ONE))),
            ("GET", of(Work::Get)),
            ("B h1", memory(Over::Http1)),
            ("B x1", memory(ONE)),
            ("B stream", optional(further)),
        ]
    }))
}

fn idle_connections(rows: &[Http2Row]) -> Option<usize> {
    rows.iter().find_map(|row| match row.subject.work {
        Work::Idle(connections, _) => Some(connections),
        _ => None,
    })
}

/// Memory of a stream beyond the first of its connection, round by round.
fn further_stream(one: &Http2Row, ten: &Http2Row) -> Vec<f64> {
    let pairs = one.runs(Metric::RssPerConnection).iter().zip(ten.runs(Metric::RssPerConnection));
    let shared = SHARED as f64;
    pairs.map(|(one, ten)| (shared * ten - one) / (shared - 1.0)).collect()
}

/// The row with the least median of its work.
fn best(rows: &[Http2Row], work: Work, is_wanted: impl Fn(Who) -> bool) -> Option<&Http2Row> {
    let is_it = |row: &&Http2Row| row.subject.work == work && row.failed.is_none() && is_wanted(row.subject.who);
    least(rows.iter().filter(is_it), work.judged())
}

/// The row of the same server, driver included, with another work.
fn same<'a>(rows: &'a [Http2Row], of: &Http2Row, work: Work) -> Option<&'a Http2Row> {
    rows.iter().find(|row| row.subject.work == work && row.subject.who.name() == of.subject.who.name())
}

fn checks(rows: &[Http2Row]) -> Vec<Check> {
    let mut checks: Vec<Check> = Vec::new();
    for (shape, over, most) in ECHOES {
        let work = Work::Echo(shape, over);
        let Some(ours) = best(rows, work, Who::is_ours) else { continue };
        checks.extend(over_http1(rows, ours, shape, most));
        checks.extend(beside(rows, ours, Who::AXUM));
    }
    if let Some(ours) = best(rows, Work::Get, Who::is_ours) {
        for other in [Program::Nginx, Program::H2o] {
            checks.extend(beside(rows, ours, Who::Other(other)));
        }
    }
    checks.extend(memory(rows));
    checks
}

/// HTTP/2 over HTTP/1.1 on the same driver.
fn over_http1(rows: &[Http2Row], ours: &Http2Row, shape: Shape, most: f64) -> Option<Check> {
    let plain = same(rows, ours, Work::Echo(shape, Over::Http1))?;
    let ratio = (Metric::RatioToPlain, ours.over(plain, ours.subject.work.judged()));
    Check::ratio(format!("{} over h1", ours.subject.name()), ours.subject.case(), ratio, Target::AtMost(most))
}

/// Ours over another server's, which it has to be below.
fn beside(rows: &[Http2Row], ours: &Http2Row, other: Who) -> Option<Check> {
    let work = ours.subject.work;
    let theirs = best(rows, work, |who| who == other)?;
    let name = format!("{} over {}", ours.subject.name(), other.name());
    let ratio = (Metric::RatioToPeer, ours.over(theirs, work.judged()));
    Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(1.0))
}

/// Memory of a connection above HTTP/1.1's, and of a further stream.
fn memory(rows: &[Http2Row]) -> Vec<Check> {
    let found = (|| {
        let idle = idle_connections(rows)?;
        let one = best(rows, Work::Idle(idle, ONE), Who::is_ours)?;
        let (plain, ten) = (same(rows, one, Work::Idle(idle, Over::Http1))?, same(rows, one, Work::Idle(idle, TEN))?);
        Some((one, plain, ten))
    })();
    let Some((one, plain, ten)) = found else { return Vec::new() };
    let metric = Metric::RssPerConnection;
    let above: Vec<f64> = one.runs(metric).iter().zip(plain.runs(metric)).map(|(one, plain)| one - plain).collect();
    let further = further_stream(one, ten);
    let (name, case) = (one.subject.who.name(), one.subject.case());
    vec![
        Check::of(format!("{name}, B above h1"), case, (metric, &above), Target::AtMost(CONNECTION)),
        Check::of(format!("{name}, B of a stream"), ten.subject.case(), (metric, &further), Target::AtMost(STREAM)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::super::Row;
    use super::super::case::Http2Case;
    use super::*;
    use crate::DriverKind;
    use crate::table::WIDTH;

    fn row(who: Who, work: Work, value: f64) -> Http2Row {
        let mut row = Row::new(Http2Case { who, work });
        row.samples.insert(work.judged(), vec![value; 5]);
        row
    }

    #[test]
    fn ours_is_judged_by_its_own_http1_and_by_each_other_server() {
        let ours = |over, driver| Who::ours(over, driver);
        let (epoll, uring) = (DriverKind::Epoll, DriverKind::Uring);
        let echo = |over| Work::Echo(SMALL, over);
        let rows = [
            row(ours(Over::Http1, epoll), echo(Over::Http1), 8.0),
            row(ours(Over::Http1, uring), echo(Over::Http1), 4.0),
            row(ours(ONE, epoll), echo(ONE), 9.0),
            row(ours(ONE, uring), echo(ONE), 5.0),
            row(Who::AXUM, echo(ONE), 20.0),
            row(ours(TEN, epoll), echo(TEN), 2.0),
            row(ours(ONE, epoll), Work::Get, 3.0),
            row(Who::Other(Program::Nginx), Work::Get, 6.0),
            row(ours(Over::Http1, epoll), Work::Idle(100, Over::Http1), 1000.0),
            row(ours(ONE, epoll), Work::Idle(100, ONE), 6000.0),
            row(ours(TEN, epoll), Work::Idle(100, TEN), 1500.0),
        ];
        let mut outcome = Outcome::of("http2");
        report(&mut outcome, &rows, &[]);
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        let values: Vec<_> = judged.iter().map(|line| (line.metric, line.value)).collect();
        let memory = Metric::RssPerConnection;
        let expected = [
            (Metric::RatioToPlain, 1.25),
            (Metric::RatioToPeer, 0.25),
            (Metric::RatioToPlain, 0.25),
            (Metric::RatioToPeer, 0.5),
            (memory, 5000.0),
            (memory, 1000.0),
        ];
        assert_eq!(values, expected);
        let met = judged.iter().map(|line| line.target.unwrap().is_met_by(line.value));
        assert!(met.eq([true, true, true, true, false, true]));
    }

    #[test]
    fn every_cell_of_a_full_table_fits_its_line() {
        let works =
            [SMALL, LARGE].into_iter().flat_map(|shape| [Over::Http1, ONE, TEN].map(|over| Work::Echo(shape, over)));
        let works = works.chain([Work::Get]).chain([Over::Http1, ONE, TEN].map(|over| Work::Idle(2_000, over)));
        let rows: Vec<_> = works.map(|work| row(Who::ours(ONE, DriverKind::Uring), work, 1234.5)).collect();
        assert!(table(&rows).to_string().lines().all(|line| line.chars().count() <= WIDTH));
    }
}
