//! The table and the targets of the suite.

use super::super::check::{self, Check};
use super::super::echo_case::Shape;
use super::super::guest::Installed;
use super::super::row::least;
use super::super::running::BODY;
use super::super::{ENGINES, Kind, Outcome, Subject as _};
use super::case::{CONNECTIONS, EdgeRow, RATE, RETURNS, Who, Work, everyone};
use super::program::Program;
use super::turn::Change;
use crate::rounds::Runs as _;
use crate::stats::Ratio;
use crate::table::{Table, bytes, optional};
use crate::{Metric, Target};

/// Greatest ratios to the best of nginx and HAProxy.
const ECHOES: [(Shape, f64); 4] = [
    (Shape::of(64), 0.70),
    (Shape::of(4096), 0.60),
    (Shape::of(65_536), 0.45),
    (Shape { pipeline: 16, ..Shape::of(64) }, 0.50),
];
const GET: f64 = 1.0;
const MEMORY: f64 = 0.25;

/// Greatest ratio at 64 B to our server and a bare TCP echo together, which do the work of a proxy's two ends.
const ENDS: f64 = 1.15;

/// Greatest ratio of messages to bytes.
const MESSAGES: f64 = 1.2;

/// The proxies that are judged by.
const JUDGES: [Program; 3] = [Program::Nginx, Program::NginxWheel, Program::Haproxy];

pub(super) fn report(outcome: &mut Outcome, rows: &[EdgeRow], installed: &[Installed<Program>]) {
    for row in rows {
        outcome.add_row(row);
        outcome.add(&row.subject.case().setup(None), Metric::RssPerConnection, &row.subject.unused);
        outcome.warnings.extend(late(row));
    }
    outcome.text = format!(
        "Edge: proxies in front of the same server, which is on the CPU of the load. us: CPU of the proxy.\n\
         Sizes, x16: for a message and its echo, {CONNECTIONS} connections, 16 in flight on each.\n\
         GET: for a response of {}, on kept connections. full, resume: for a connection.\n\
         p50, p99: us, 64 B, {RATE} messages a second, from the time at which one was due.\n\
         storm: p99, without the waits of the load, beside {RETURNS} connections a second that resume sessions.\n\
         B/pair: memory of an idle client and its server's connection, after one echo.\n\n{}",
        bytes(BODY as u64),
        table(rows)
    );
    outcome.text += &changes(rows);
    if !installed.is_empty() {
        let versions: Vec<_> = installed.iter().map(Installed::title).collect();
        outcome.text += &format!("\nBeside: {}.\n", versions.join(", "));
    }
    outcome.warn_if_noisy(rows, |case| case.work.judged());
    check::report(outcome, checks(rows));
}

/// Warns of a proxy that did not take all returns, so that its latency is that of fewer.
fn late(row: &EdgeRow) -> Option<String> {
    let rate = row.median(Metric::Handshakes).filter(|rate| *rate < 0.9 * RETURNS)?;
    (row.subject.work == Work::Returns)
        .then(|| format!("{} took {rate:.0} returns a second of {RETURNS}", row.subject.who.name()))
}

fn table(rows: &[EdgeRow]) -> Table {
    let idle = rows.iter().map(|row| row.subject.work).find(|work| matches!(work, Work::Idle(_)));
    Table::of(everyone(rows).into_iter().map(|who| {
        let of = |work, metric| figure(rows, (who, work), metric);
        let echo = |at: usize| of(Work::Echo(ECHOES[at].0), Metric::ServerCpuPerMsg);
        let handshake = |resumed| of(Work::Handshake { resumed }, Metric::ServerCpuPerHandshake);
        [
            ("<proxy", who.name()),
            ("64 B", echo(0)),
            ("4 KiB", echo(1)),
            ("64 KiB", echo(2)),
            ("x16", echo(3)),
            ("GET", of(Work::Get, Metric::ServerCpuPerMsg)),
            ("full", handshake(false)),
            ("resume", handshake(true)),
            ("p50", of(Work::Rate, Metric::LatencyP50)),
            ("p99", of(Work::Rate, Metric::LatencyP99)),
            ("storm", of(Work::Returns, Metric::LatencyP99)),
            ("B/pair", idle.map_or_else(|| optional(None), |idle| of(idle, Metric::RssPerConnection))),
        ]
    }))
}

/// A cell: the median of a metric in the row of this proxy and work.
fn figure(rows: &[EdgeRow], of: (Who, Work), metric: Metric) -> String {
    let row = rows.iter().find(|row| (row.subject.who, row.subject.work) == of);
    optional(row.and_then(|row| row.median(metric)))
}

/// The table of changes under load.
fn changes(rows: &[EdgeRow]) -> String {
    let table = Table::of(everyone(rows).into_iter().filter(|who| is_changed(rows, *who)).map(|who| {
        let [reload, program] = Change::ALL.map(|change| {
            let metrics = [Metric::Errors, Metric::LatencyP99, Metric::LatencyMax, Metric::Processes];
            metrics.map(|metric| figure(rows, (who, Work::Change(change)), metric))
        });
        let ([cut, p99, max, left], [cut2, p99_2, max2, left2]) = (reload, program);
        [
            ("<proxy", who.name()),
            ("reload: cut", cut),
            ("p99", p99),
            ("max", max),
            ("left", left),
            ("program: cut", cut2),
            ("p99", p99_2),
            ("max", max2),
            ("left", left2),
        ]
    }));
    table.below(&format!(
        "\nReloads, and new processes of the program at the same path, under {RATE} messages a second on\n\
         {CONNECTIONS} connections. cut: connections that ended. p99, max: us, of all messages meanwhile.\n\
         left: processes afterwards, while the connections are open."
    ))
}

fn is_changed(rows: &[EdgeRow], who: Who) -> bool {
    rows.iter().any(|row| row.subject.who == who && matches!(row.subject.work, Work::Change(_)))
}

/// The row with the least median of its work.
fn best(rows: &[EdgeRow], work: Work, is_wanted: impl Fn(Who) -> bool) -> Option<&EdgeRow> {
    let is_it = |row: &&EdgeRow| row.subject.work == work && row.failed.is_none() && is_wanted(row.subject.who);
    least(rows.iter().filter(is_it), work.judged())
}

fn checks(rows: &[EdgeRow]) -> Vec<Check> {
    let idle = rows.iter().map(|row| row.subject.work).find(|work| matches!(work, Work::Idle(_)));
    let mut targets: Vec<(Work, f64)> = ECHOES.map(|(shape, most)| (Work::Echo(shape), most)).into();
    targets.push((Work::Get, GET));
    targets.extend(idle.map(|idle| (idle, MEMORY)));
    let is_judge = |who| matches!(who, Who::Other(program) if JUDGES.contains(&program));
    let beside = targets.into_iter().filter_map(|(work, most)| {
        let (ours, other) = (best(rows, work, Who::is_our_proxy)?, best(rows, work, is_judge)?);
        let name = format!("{} over {}", ours.subject.name(), other.subject.who.name());
        let ratio = (Metric::RatioToPeer, ours.over(other, work.judged()));
        Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(most))
    });
    beside.chain(ends(rows)).chain(messages(rows)).collect()
}

/// Our proxy that passes messages over the one that passes bytes.
fn messages(rows: &[EdgeRow]) -> impl Iterator<Item = Check> {
    ECHOES.into_iter().filter_map(|(shape, _)| {
        let work = Work::Echo(shape);
        let ours = best(rows, work, |who| matches!(who, Who::Messages(_)))?;
        let bytes = best(rows, work, Who::is_our_proxy)?;
        let name = format!("{} over bytes", ours.subject.name());
        let ratio = (Metric::RatioToPeer, ours.over(bytes, work.judged()));
        Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(MESSAGES))
    })
}

/// Our proxy over its two ends alone: the TLS of a server with its clients, and a connection without TLS.
fn ends(rows: &[EdgeRow]) -> Option<Check> {
    let work = Work::Echo(ECHOES[0].0);
    let ours = best(rows, work, Who::is_our_proxy)?;
    let secure = best(rows, work, |who| matches!(who, Who::Ours(kind) if kind.is_wss_by(ENGINES[0])))?;
    let plain = best(rows, work, |who| matches!(who, Who::Ours(Kind::Tcp(_))))?;
    let [ours_runs, secure, plain] = [ours, secure, plain].map(|row| row.runs(work.judged()));
    let both: Vec<f64> = secure.iter().zip(plain).map(|(secure, plain)| secure + plain).collect();
    let name = format!("{} over no proxy and tcp", ours.subject.name());
    let ratio = (Metric::RatioToLimit, Ratio::paired(ours_runs, &both));
    Check::ratio(name, ours.subject.case(), ratio, Target::AtMost(ENDS))
}

#[cfg(test)]
mod tests {
    use super::super::super::Row;
    use super::super::case::EdgeCase;
    use super::*;
    use crate::DriverKind;
    use crate::suites::Key;
    use crate::table::WIDTH;

    fn row(who: Who, work: Work, value: f64) -> EdgeRow {
        let mut row = Row::new(EdgeCase { who, work, unused: Vec::new() });
        row.samples.insert(work.judged(), vec![value; 5]);
        row
    }

    #[test]
    fn the_cheaper_driver_is_judged_by_the_cheaper_of_nginx_and_haproxy() {
        let proxy = |driver| Who::Ours(Kind::Proxy(driver));
        let echo = Work::Echo(Shape::of(64));
        let rows = [
            row(proxy(DriverKind::Epoll), echo, 20.0),
            row(proxy(DriverKind::Uring), echo, 16.0),
            row(Who::Messages(DriverKind::Epoll), echo, 20.0),
            row(Who::Other(Program::Nginx), echo, 25.0),
            row(Who::Other(Program::Haproxy), echo, 32.0),
            // Not judged by.
            row(Who::Other(Program::Caddy), echo, 10.0),
            row(Who::Ours(Kind::Wss(ENGINES[0], Key::P256, DriverKind::Epoll)), echo, 9.0),
            row(Who::Ours(Kind::Tcp(DriverKind::Epoll)), echo, 7.0),
            row(proxy(DriverKind::Epoll), Work::Idle(300), 2_000.0),
            row(Who::Other(Program::Nginx), Work::Idle(300), 40_000.0),
            row(proxy(DriverKind::Epoll), Work::Get, 30.0),
            row(Who::Other(Program::Nginx), Work::Get, 20.0),
            row(proxy(DriverKind::Epoll), Work::Change(Change::Reload), 300.0),
            row(Who::Other(Program::NginxWheel), Work::Change(Change::Program), 123_456.0),
        ];
        let mut outcome = Outcome::of("edge");
        report(&mut outcome, &rows, &[]);
        assert!(outcome.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", outcome.text);
        let judged: Vec<_> = outcome.lines.iter().filter(|line| line.target.is_some()).collect();
        let values: Vec<_> = judged.iter().map(|line| (line.metric, line.value)).collect();
        let peer = Metric::RatioToPeer;
        assert_eq!(values, [(peer, 0.64), (peer, 1.5), (peer, 0.05), (Metric::RatioToLimit, 1.0), (peer, 1.25)]);
        let met = judged.iter().map(|line| line.target.unwrap().is_met_by(line.value));
        assert!(met.eq([true, false, true, true, false]));
        assert_eq!(judged[0].case.driver.as_deref(), Some("uring"));
        assert!(outcome.text.contains("tautline uring, 64 B over nginx"), "{}", outcome.text);
    }

    #[test]
    fn every_cell_of_a_full_table_fits_its_line() {
        let works = ECHOES.map(|(shape, _)| Work::Echo(shape));
        let rows: Vec<_> =
            works.into_iter().map(|work| row(Who::Ours(Kind::Proxy(DriverKind::Epoll)), work, 1234.5)).collect();
        assert!(table(&rows).to_string().lines().all(|line| line.chars().count() <= WIDTH));
    }
}
