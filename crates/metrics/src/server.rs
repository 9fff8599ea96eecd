//! The families of a server's metrics.

use crate::families::{Families, Histogram};
use crate::figures::{AcmeFigures, Figures, UpgradeFigures};
use prometheus_client::registry::Unit;
use std::fmt::Error;
use tautline_engine::probe::{Stage, Stages};
use tautline_engine::{BrokerCounters, Counters, Outcomes};

/// Upper ends of the ranges of stages, in seconds.
const STAGE_ENDS: [f64; 14] = [2e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1];

pub(crate) fn encode(figures: &Figures, families: &mut Families<'_>) -> Result<(), Error> {
    let (mut counters, mut outcomes) = (Counters::default(), Outcomes::default());
    for one in &figures.loops {
        counters.merge(&one.counters);
        outcomes.merge(&one.outcomes);
    }
    families.info("build", "The version of Tautline", &[("version", env!("CARGO_PKG_VERSION"))])?;
    loops(figures, families)?;
    connections(&counters, families)?;
    handshakes(&counters, &outcomes, families)?;
    messages(&counters, families)?;
    ends(&counters, &outcomes, families)?;
    memory(&counters, families)?;
    if let Some(stages) = &figures.stages {
        self::stages(stages, families)?;
    }
    if let Some(upgrades) = &figures.upgrades {
        self::upgrades(upgrades, families)?;
    }
    if let Some(broker) = &figures.broker {
        self::broker(broker, families)?;
    }
    tls(figures, families)
}

fn loops(figures: &Figures, families: &mut Families<'_>) -> Result<(), Error> {
    let numbers: Vec<String> = figures.loops.iter().map(|one| one.number.to_string()).collect();
    let all = || numbers.iter().zip(&figures.loops);
    let of = |value: fn(&Counters) -> u64| all().map(move |(number, one)| (number, value(&one.counters)));
    let running = all().map(|(number, one)| (number, u64::from(one.running)));
    families.gauges("loop_running", "Whether the loop runs", None, "loop", running)?;
    let help = "Open WebSockets of the loop";
    families.gauges("loop_open_websockets", help, None, "loop", of(|counters| counters.open))?;
    let help = "Messages that the loop received and sent";
    families.counters("loop_messages", help, "loop", of(|counters| counters.messages_in + counters.messages_out))?;
    let help = "Turns of a loop that took too long, because a handler blocked it or other threads had its CPU";
    families.counter("slow_turns", help, of(|counters| counters.turns_slow).map(|(_, slow)| slow).sum())?;
    let draining = figures.loops.iter().any(|one| one.draining);
    families.gauge("draining", "Whether the server is being drained", u64::from(draining))
}

fn connections(counters: &Counters, families: &mut Families<'_>) -> Result<(), Error> {
    let Counters { connections, handshaking, http, open, carrying, .. } = *counters;
    // The counters are not all of one instant.
    let closing = connections.saturating_sub(handshaking + http + open + carrying);
    let states =
        [("handshake", handshaking), ("http", http), ("open", open), ("carrier", carrying), ("closing", closing)];
    families.gauges("connections", "Present connections by state", None, "state", states)?;
    families.counter("connections_accepted", "Connections accepted", counters.accepted)?;
    let help = "Connections with HTTP/2; each of their streams counts as a connection accepted, too";
    families.counter("http2_connections", help, counters.carriers)?;
    let reasons = [
        ("streams", counters.streams_refused),
        ("stream_window", counters.stream_windows_exceeded),
        ("fields", counters.stream_heads_too_big),
        ("rule", counters.streams_faulty),
    ];
    let help = "Streams of HTTP/2 that were refused or reset, by the limit that the client met; rule: it broke one";
    families.counters("http2_streams_refused", help, "reason", reasons)?;
    families.counter("websockets_opened", "WebSockets opened", counters.opened)
}

fn handshakes(counters: &Counters, outcomes: &Outcomes, families: &mut Families<'_>) -> Result<(), Error> {
    let kinds = [("full", &outcomes.full), ("resumed", &outcomes.resumed)];
    let help = "TLS handshakes with clients, from the connection to the end of the handshake, network included";
    families.histograms("tls_handshake", help, "kind", kinds.map(|(kind, times)| (kind, times.into())))?;
    let help = "Steps of handshakes on other threads, the wait for the thread included";
    families.histograms("handshake_offloaded", help, "", [("", (&outcomes.offloaded).into())])?;
    let help = "Steps of handshakes that waited for a thread that the scheduler did not run";
    families.counter("handshakes_stalled", help, counters.handshakes_stalled)?;
    let refused = counters.handshakes_refused + counters.origins_refused;
    let evicted = counters.handshakes_evicted;
    let reasons = [
        ("refused", refused),
        ("evicted", evicted),
        ("other", counters.handshakes_failed.saturating_sub(refused + evicted)),
    ];
    let help = "Opening handshakes that failed: refused because too many waited or for the page's origin, evicted by newer ones, or else";
    families.counters("handshakes_failed", help, "reason", reasons)?;
    let help =
        "Connections refused for their header of the PROXY protocol: a wrong one, none, or a peer that may send none";
    families.counter("proxy_headers_refused", help, counters.proxy_headers_refused)
}

fn messages(counters: &Counters, families: &mut Families<'_>) -> Result<(), Error> {
    let directions = [("received", counters.messages_in), ("sent", counters.messages_out)];
    let help = "Messages; a published one counts for each receiver, and one that is dropped later counts too";
    families.counters("messages", help, "direction", directions)?;
    let directions = [("received", counters.bytes_in), ("sent", counters.bytes_out)];
    families.counters("bytes", "Bytes on the wire", "direction", directions)?;
    let policies = [
        ("drop_newest", counters.dropped_newest),
        ("drop_oldest", counters.dropped_oldest),
        ("keep_latest", counters.dropped_latest),
    ];
    let by_policy: u64 = policies.iter().map(|(_, dropped)| dropped).sum();
    let other = [("none", counters.messages_dropped.saturating_sub(by_policy))];
    let help = "Messages dropped, by the policy for slow consumers; none: a full loop, or amid a streamed message";
    families.counters("messages_dropped", help, "policy", policies.into_iter().chain(other))?;
    let help = "Compressions of published messages";
    families.counter("publications_compressed", help, counters.publications_compressed)?;
    let help = "Seals of large messages: offloaded, helped by another thread, and late because of it";
    let seals =
        [("offloaded", counters.seals_offloaded), ("helped", counters.seals_helped), ("late", counters.seals_late)];
    families.counters("seals", help, "kind", seals)
}

fn ends(counters: &Counters, outcomes: &Outcomes, families: &mut Families<'_>) -> Result<(), Error> {
    let codes: Vec<(String, u64)> = outcomes
        .codes()
        .map(|(code, ended)| (code.map_or_else(|| "other".to_owned(), |code| code.get().to_string()), ended))
        .collect();
    families.counters("websockets_closed", "WebSockets ended, by the close code of the peer", "code", codes)?;
    let help = "WebSockets ended, by the cause";
    families.counters("websockets_ended", help, "cause", outcomes.causes())?;
    families.counter("panics", "Panics of the application", counters.panics)?;
    let limits = [
        ("limits.max_connections", counters.accept_pauses),
        ("limits.max_handshakes", counters.handshakes_evicted),
        ("limits.max_http", counters.http_evicted),
        ("limits.max_message", counters.messages_too_big),
        ("limits.head", counters.heads_too_big),
        ("limits.max_subscriptions", counters.subscriptions_refused),
        ("limits.pause_receive_above", counters.receive_pauses),
        ("limits.memory: refused", counters.connections_refused),
        ("limits.memory: closed", counters.memory_closed),
        ("http2", counters.carriers_failed),
        ("slow_consumer", counters.slow_consumers),
        ("deadlines.handshake", counters.missed_handshake),
        ("deadlines.idle", counters.missed_idle),
        ("deadlines.silence", counters.missed_silence),
        ("deadlines.close", counters.missed_close),
        ("deadlines.send", counters.missed_send),
    ];
    let help = "Times that peers met a limit or a deadline of the configuration";
    families.counters("limits_met", help, "limit", limits)
}

fn memory(counters: &Counters, families: &mut Families<'_>) -> Result<(), Error> {
    let kinds = [
        ("connections", counters.memory_connections),
        ("heads", counters.memory_heads),
        ("partial", counters.memory_partial),
        ("sending", counters.memory_sending),
        ("queued", counters.memory_queued),
        ("deflate", counters.memory_deflate),
        ("requests", counters.memory_requests),
        ("topics", counters.memory_topics),
        ("timers", counters.memory_timers),
        ("sources", counters.memory_sources),
        ("application", counters.memory_application),
        ("pooled", counters.memory_pooled),
        ("commands", counters.memory_commands),
        ("published", counters.memory_published),
    ];
    let help = "Memory of the loops by use; queued, published and sending wait for peers";
    families.gauges("memory", help, Some(&Unit::Bytes), "use", kinds)
}

fn stages(stages: &Stages, families: &mut Families<'_>) -> Result<(), Error> {
    let histogram = |stage| {
        let spread = stages.spread(stage);
        let times = stages.histogram(stage).map(|(micros, count)| (micros / 1e6, count));
        Histogram::sorted(spread.mean / 1e6 * spread.count as f64, &STAGE_ENDS, times)
    };
    let all = Stage::ALL.map(|stage| (stage.name(), histogram(stage)));
    families.histograms("stage", "Stages of received messages, from the network to the handler", "stage", all)
}

fn upgrades(upgrades: &UpgradeFigures, families: &mut Families<'_>) -> Result<(), Error> {
    let results = [("done", upgrades.done), ("failed", upgrades.failed)];
    families.counters("upgrades", "Upgrades to a new process", "result", results)?;
    let help = "Times of upgrades during which no connection was served";
    families.histograms("upgrade_pause", help, "", [("", (&upgrades.pause).into())])?;
    let fates = [("moved", upgrades.moved), ("refused", upgrades.refused)];
    let staying = upgrades.staying.by_reason().map(|(reason, count)| (reason, count as u64));
    let help = "Connections in upgrades: moved, refused by the new process, or closed, by the reason";
    families.counters("upgrade_connections", help, "fate", fates.into_iter().chain(staying))
}

fn broker(broker: &BrokerCounters, families: &mut Families<'_>) -> Result<(), Error> {
    let help = "Whether the broker between hosts is connected";
    families.gauge("broker_connected", help, u64::from(broker.connected))?;
    families.counter("broker_connects", "Times that the broker was connected", broker.connects)?;
    let help = "Attempts to connect the broker that failed, and connections to it that were lost";
    families.counter("broker_failures", help, broker.failures)?;
    let directions = [("received", broker.received), ("sent", broker.passed)];
    let help = "Messages of other hosts, and messages that were given to the broker";
    families.counters("broker_messages", help, "direction", directions)?;
    let reasons = [("away", broker.withheld_away), ("full", broker.withheld_full), ("missed", broker.missed)];
    let help = "Messages that other hosts did not get: the broker was away, or too many waited; missed: by a loop here";
    families.counters("broker_messages_dropped", help, "reason", reasons)?;
    families.gauge("broker_messages_waiting", "Messages that wait for the broker", broker.waiting)?;
    families.gauge("broker_interests", "Topics and prefixes that this host follows", broker.interests)
}

fn tls(figures: &Figures, families: &mut Families<'_>) -> Result<(), Error> {
    let ends: Vec<_> = figures
        .certificates
        .iter()
        .map(|of| (vec![("name", of.name.as_str()), ("serial", of.serial.as_str())], of.not_after))
        .collect();
    if !ends.is_empty() {
        families.times("certificate_expiry_timestamp", "When a certificate expires, since 1970", &ends)?;
    }
    if let Some(acme) = &figures.acme {
        self::acme(acme, families)?;
    }
    let Some(reloads) = figures.reloads else { return Ok(()) };
    let results = [("done", reloads.done), ("failed", reloads.failed)];
    families.counters("reloads", "Reloads of the TLS configuration", "result", results)
}

fn acme(acme: &AcmeFigures, families: &mut Families<'_>) -> Result<(), Error> {
    // Zero before the first certificate: an alert on the time that is left then fires as well.
    let help = "When the certificate that the server ordered expires, since 1970; 0 before the first one";
    families.gauge("acme_expiry_timestamp_seconds", help, acme.expiry.unwrap_or_default())?;
    let help = "When that certificate was stored, since 1970; 0 before the first one";
    families.gauge("acme_last_success_timestamp_seconds", help, acme.last_success.unwrap_or_default())?;
    let help = "When that certificate is to be renewed, since 1970; 0 before the first one";
    families.gauge("acme_renewal_timestamp_seconds", help, acme.due.unwrap_or_default())?;
    families.counter("acme_orders", "Certificates that this process has ordered", acme.orders)?;
    let help = "Orders that failed, by the kind of the failure";
    families.counters("acme_failures", help, "kind", acme.failures.iter().copied())?;
    let help = "Whether this process orders, of several with one folder";
    families.gauge("acme_orders_itself", help, u64::from(acme.orders_itself))?;
    let Some(responses) = &acme.responses else { return Ok(()) };
    let help = "When the OCSP response beside that certificate expires, since 1970; 0 without one";
    families.gauge("acme_ocsp_expiry_timestamp_seconds", help, responses.expiry.unwrap_or_default())?;
    let results = [("done", responses.done), ("failed", responses.failed)];
    families.counters("acme_ocsp_responses", "OCSP responses that this process has asked for", "result", results)
}

#[cfg(test)]
mod tests {
    use crate::{Figures, LoopFigures};
    use tautline_engine::{Counters, Outcomes};

    #[test]
    fn a_page_of_another_origin_counts_as_refused() {
        let mut counters = Counters::default();
        (counters.handshakes_failed, counters.handshakes_refused) = (10, 1);
        (counters.handshakes_evicted, counters.origins_refused) = (2, 3);
        let mut figures = Figures::default();
        figures.loops.push(LoopFigures::new(0, true, counters, Outcomes::default()));
        let text = figures.encode();
        for (reason, count) in [("refused", 4), ("evicted", 2), ("other", 4)] {
            let line = format!("tautline_handshakes_failed_total{{reason=\"{reason}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}
