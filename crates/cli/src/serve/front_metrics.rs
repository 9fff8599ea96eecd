//! The figures of a proxy's routes and servers at `/metrics`.

use super::front::Front;
use std::fmt::Error;
use tautline::layers::metrics::Collector;
use tautline::layers::metrics::prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use tautline::layers::metrics::prometheus_client::metrics::MetricType;
use tautline::layers::metrics::prometheus_client::registry::Unit;
use tautline_proxy::tally::{CLASSES, ENDS, Figures, RULES, RouteFigures, ServerFigures, Spread};

/// Writes the figures of a front for each scrape.
#[derive(Debug)]
pub(super) struct FrontMetrics(pub(super) Front);

impl Collector for FrontMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let (mut writer, [done, refused]) = (Writer(encoder), self.0.reloads());
        let help = "Times that the configuration was read again; a refused one changes nothing";
        let results = [("ok", done), ("failed", refused)].map(|(result, number)| (vec![("result", result)], number));
        writer.family(MetricType::Counter, "reloads", help, results)?;
        encode(&self.0.figures(), &mut writer)
    }
}

struct Writer<'a>(DescriptorEncoder<'a>);

/// The labels of a series, and its value.
type Series<'f> = (Vec<(&'static str, &'f str)>, u64);

impl Writer<'_> {
    fn family<'f>(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = Series<'f>>,
    ) -> Result<(), Error> {
        let is_counter = matches!(kind, MetricType::Counter);
        let name = format!("taut_proxy_{name}");
        let mut family = self.0.encode_descriptor(&name, help, None, kind)?;
        all.into_iter().try_for_each(|(labels, value)| {
            let mut one = family.encode_family(&labels)?;
            if is_counter { one.encode_counter::<NoLabelSet, u64, f64>(&value, None) } else { one.encode_gauge(&value) }
        })
    }

    fn times<'f>(
        &mut self,
        name: &str,
        help: &str,
        all: impl Iterator<Item = (&'f str, &'f str, &'f Spread)>,
    ) -> Result<(), Error> {
        let name = format!("taut_proxy_{name}");
        let mut family = self.0.encode_descriptor(&name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (backend, server, spread) in all {
            histogram(spread, &mut family.encode_family(&[("backend", backend), ("server", server)])?)?;
        }
        Ok(())
    }
}

fn histogram(spread: &Spread, metric: &mut MetricEncoder<'_>) -> Result<(), Error> {
    let ends = ENDS.into_iter().chain([f64::INFINITY]);
    let ranges: Vec<(f64, u64)> = ends.zip(spread.ranges).collect();
    metric.encode_histogram::<NoLabelSet>(spread.sum, spread.ranges.iter().sum(), &ranges, None)
}

fn encode(figures: &Figures, writer: &mut Writer<'_>) -> Result<(), Error> {
    routes(figures, writer)?;
    limits(figures, writer)?;
    let all = || {
        let of = |backend| move |server| (backend, server);
        figures.backends.iter().flat_map(move |backend| backend.servers.iter().map(of(backend.name.as_str())))
    };
    let each = |value: fn(&ServerFigures) -> u64| all().map(move |(backend, of)| (place(backend, of), value(of)));
    let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
    let help = "Whether the server gets requests: its checks pass, and it is not out after failures";
    writer.family(gauge, "server_up", help, each(|server| u64::from(server.is_up())))?;
    let help = "Whether the configuration lets the server get nothing new";
    writer.family(gauge, "server_drained", help, each(|server| u64::from(server.is_drained)))?;
    let states = |server: &ServerFigures| {
        let ServerFigures { connecting, requests, tunnels, idle, .. } = *server;
        [("connecting", connecting), ("request", requests), ("tunnel", tunnels), ("idle", idle)]
    };
    let labelled = |label, values: Vec<(&'static str, u64)>, (backend, of)| {
        let with = move |(is, value)| ([place(backend, of), vec![(label, is)]].concat(), value);
        values.into_iter().map(with).collect::<Vec<_>>()
    };
    let help = "Connections to the server: being made, with a request, with a tunnel, and kept";
    let series = all().flat_map(|one| labelled("state", states(one.1).to_vec(), one));
    writer.family(gauge, "server_connections", help, series)?;
    let help = "Requests by the class of the server's status; none: it gave none";
    let series = all().flat_map(|one| labelled("status", statuses(&one.1.statuses), one));
    writer.family(counter, "server_requests", help, series)?;
    let help = "Bytes of bodies and tunnels, to and from the server";
    let directions = |one: &ServerFigures| vec![("sent", one.sent), ("received", one.received)];
    let series = all().flat_map(|one| labelled("direction", directions(one.1), one));
    writer.family(counter, "server_bytes", help, series)?;
    let help = "Messages of routes with `messages`, to and from the server";
    let directions = |one: &ServerFigures| vec![("sent", one.messages_sent), ("received", one.messages_received)];
    let series = all().flat_map(|one| labelled("direction", directions(one.1), one));
    writer.family(counter, "server_messages", help, series)?;
    let help = "Requests that were sent again, to this server or to another one";
    writer.family(counter, "server_retries", help, each(|server| server.retries))?;
    let help = "Connections that were not made, and responses that did not come in time";
    writer.family(counter, "server_failures", help, each(|server| server.failures))?;
    let help = "Times that failures in a row took the server out";
    writer.family(counter, "server_ejections", help, each(|server| server.ejections))?;
    let help = "Times from the attempt to the connection, TLS included";
    writer.times("server_connect", help, all().map(|(backend, of)| (backend, of.name.as_str(), &of.connect)))?;
    let help = "Times from the request to the head of the response";
    writer.times("server_head", help, all().map(|(backend, of)| (backend, of.name.as_str(), &of.head)))
}

fn routes(figures: &Figures, writer: &mut Writer<'_>) -> Result<(), Error> {
    let counter = MetricType::Counter;
    let labelled = |label, values: fn(&RouteFigures) -> Vec<(&'static str, u64)>| {
        let of = |name, (is, value)| (vec![("route", name), (label, is)], value);
        let each = move |route| values(route).into_iter().map(move |one| of(route.name.as_str(), one));
        figures.routes.iter().flat_map(each).collect::<Vec<_>>()
    };
    let help = "Requests by the class of the status for the client; none: it went away before";
    writer.family(counter, "requests", help, labelled("status", |route| statuses(&route.statuses)))?;
    let help = "Bytes of bodies and tunnels, from and to clients";
    let bytes = labelled("direction", |route| vec![("received", route.received), ("sent", route.sent)]);
    writer.family(counter, "bytes", help, bytes)?;
    let help = "Messages of routes with `messages`, from and to clients";
    let messages =
        labelled("direction", |route| vec![("received", route.messages_received), ("sent", route.messages_sent)]);
    writer.family(counter, "messages", help, messages)?;
    let help = "Messages that were dropped because their client did not read";
    let dropped = figures.routes.iter().map(|route| (vec![("route", route.name.as_str())], route.dropped));
    writer.family(counter, "messages_dropped", help, dropped)?;
    let help = "WebSockets that were closed by a rule of `messages`";
    writer.family(counter, "closed", help, labelled("rule", |route| RULES.into_iter().zip(route.closed).collect()))
}

/// Requests that wait for a server, and those that limits refuse.
fn limits(figures: &Figures, writer: &mut Writer<'_>) -> Result<(), Error> {
    let counter = MetricType::Counter;
    let help = "Requests that wait for a server with room";
    let waiting = figures.backends.iter().map(|one| (vec![("backend", one.name.as_str())], one.queue.waiting as u64));
    writer.family(MetricType::Gauge, "backend_waiting", help, waiting)?;
    let help = "Requests for which no server had room: they have waited, found the queue full, or waited in vain";
    let waits = figures.backends.iter().flat_map(|one| {
        let ends = [("queued", one.queue.joined), ("full", one.queue.refused), ("expired", one.queue.expired)];
        ends.map(|(is, value)| (vec![("backend", one.name.as_str()), ("wait", is)], value))
    });
    writer.family(counter, "backend_waits", help, waits)?;
    let help = "Requests and connections beyond a limit of their source in [limits]";
    let refused = figures.limits.iter().map(|limit| (vec![("limit", limit.key)], limit.refused));
    writer.family(counter, "limited", help, refused)
}

fn place<'f>(backend: &'f str, server: &'f ServerFigures) -> Vec<(&'static str, &'f str)> {
    vec![("backend", backend), ("server", server.name.as_str())]
}

fn statuses(counts: &[u64; CLASSES.len()]) -> Vec<(&'static str, u64)> {
    CLASSES.into_iter().zip(*counts).collect()
}
