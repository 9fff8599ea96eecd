use super::super::echo_case::{EchoRow, Shape};
use super::super::{Kind, Row, unique};
use super::more::{COMMON, MoreCase, SUBSCRIBERS, Work, broadcaster};
use crate::Metric;
use crate::rounds::Runs;
use crate::table::{Table, number, optional};

/// One line for each server, with all that was measured of it.
pub(super) fn table(echoes: &[EchoRow], more: &[Row<MoreCase>]) -> String {
    let shapes = unique(echoes.iter().map(|row| row.subject.shape));
    let title = |shape: &Shape| if shape.pipeline > 1 { format!("x{}", shape.pipeline) } else { shape.name() };
    let titles: Vec<String> = shapes.iter().map(title).collect();
    let mut head = vec!["<"];
    head.extend(titles.iter().map(String::as_str));
    head.extend(["all", "full", "resume", "B/conn", "p99.9"]);
    let mut table = Table::new(&head);
    for kind in unique(echoes.iter().map(|row| row.subject.kind)) {
        let us = |shape: &Shape| {
            let row = echoes.iter().find(|row| row.subject.kind == kind && row.subject.shape == *shape);
            optional(row.and_then(|row| row.median(row.subject.cpu_metric())))
        };
        let of = |work: Work, metric: Metric| {
            let served = if work == Work::Broadcast { broadcaster(kind) } else { Some(kind) };
            let row = more.iter().find(|row| Some(row.subject.kind) == served && row.subject.work == work);
            optional(row.and_then(|row| row.median(metric)))
        };
        let mut cells = vec![name(kind)];
        cells.extend(shapes.iter().map(us));
        cells.push(of(Work::Broadcast, Metric::ServerCpuPerMsg));
        cells.extend([false, true].map(|resumed| of(Work::Handshake { resumed }, Metric::ServerCpuPerHandshake)));
        cells.push(of(Work::Idle, Metric::RssPerConnection));
        cells.push(of(Work::CommonRate, Metric::LatencyP999));
        table.row(cells);
    }
    let amount = |work: Work| more.iter().find(|row| row.subject.work == work).map(|row| row.subject.amount);
    let (idle, rate) = (amount(Work::Idle), amount(Work::CommonRate));
    format!(
        "Peers over wss, one server thread each. Server CPU in us: for an echo (100 connections, one message\n\
         in flight on each; x16: 64 B, 16 in flight), for one delivery of a broadcast of 64 B to {}, for\n\
         a full and a resumed handshake (P-256, X25519). B/conn: resident memory for each of {} idle\n\
         connections. p99.9: latency in us with 64 B at {} msg/s, {} % of the slowest server's rate.\n\
         aead: a provider's AES-128-GCM alone, one seal and one open for every 16 KiB, in memory.\n\
         A dash: the server cannot do it, or the notes below say why.\n\n{table}",
        number(SUBSCRIBERS as f64),
        optional(idle),
        optional(rate),
        number(COMMON * 100.0),
    )
}

/// Name of a server, which speaks wss unless it says otherwise.
fn name(kind: Kind) -> String {
    let name = kind.full_name();
    name.strip_prefix("wss ").unwrap_or(&name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::super::echo_case;
    use super::super::{Effort, Peer, SHAPES, kinds, more};
    use super::*;
    use crate::DriverKind;
    use crate::table::WIDTH;

    #[test]
    fn one_line_has_all_of_a_server_and_dashes_for_what_it_lacks() {
        let drivers = [DriverKind::Epoll, DriverKind::Uring];
        let mut echoes = echo_case::rows(&SHAPES, &kinds(Effort::Thorough, &drivers, Peer::SIDE_BY_SIDE));
        for row in &mut echoes {
            row.samples.insert(Metric::ServerCpuPerMsg, vec![123.4; 3]);
        }
        let mut rows = Vec::new();
        for kind in more::servers(&drivers, Peer::SIDE_BY_SIDE) {
            let works = [Work::Handshake { resumed: false }, Work::Handshake { resumed: true }, Work::CommonRate];
            rows.extend(works.map(|work| MoreCase::row(kind, work, 5678.0)));
            rows.push(MoreCase::row(kind, Work::Idle, 2000.0));
            rows.extend(broadcaster(kind).map(|kind| MoreCase::row(kind, Work::Broadcast, 0.0)));
        }
        for row in &mut rows {
            for metric in [Metric::ServerCpuPerHandshake, Metric::LatencyP999, Metric::ServerCpuPerMsg] {
                row.samples.insert(metric, vec![2345.6; 3]);
            }
            row.samples.insert(Metric::RssPerConnection, vec![123_456.0; 3]);
        }
        let text = table(&echoes, &rows);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH) && !text.contains('…'), "{text}");
        assert!(text.contains("each of 2,000 idle") && text.contains("5,678 msg/s"), "{text}");
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect();
        let coder: Vec<&str> = line("coder");
        assert_eq!((coder.len(), coder[7], coder[10]), (12, "2,346", "123,456"));
        let lacking: Vec<&str> = line("fastwebsockets");
        assert_eq!((lacking.len(), lacking[7], lacking[8]), (12, "-", "2,346"));
    }
}
