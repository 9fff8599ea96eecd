//! Options of work on other threads, and the report of counters.

use crate::failure::Failure;
use crate::output;
use log::Level;
use std::time::Duration;
use tautline::{Config, Counters, KeyCost, Records, Reloader, Reloads, ShardHandle};
use tautline_probe::amount;

/// Most threads that an option accepts. A larger number is probably a slip, and could exhaust the machine.
const MOST_THREADS: i64 = 1024;

/// Handshakes and records on other threads.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Loops and limits")]
pub(super) struct OffloadArguments {
    /// Threads for handshakes with an expensive signature (RSA); 0 keeps all in their loops. Default: one per two CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=MOST_THREADS))]
    handshake_threads: Option<u16>,
    /// Signature time from which a handshake is expensive. The times of the keys are logged with -v, and shorter ones than
    /// this with -vv. Default: 200.
    #[arg(long, value_name = "MICROSECONDS")]
    handshake_min_signature: Option<u64>,
    /// Handshakes that may wait for such a thread; further connections are reset at once. Default: 4096.
    #[arg(long, value_name = "N")]
    handshake_max_waiting: Option<usize>,
    /// Longest wait for such a thread; connections that would wait longer are reset at once. Default: 3000.
    #[arg(long, value_name = "MILLISECONDS")]
    handshake_max_wait: Option<u64>,
    /// These threads have idle priority. After this time without CPU, threads of a higher priority take over; 0 uses only
    /// those. Default: 10.
    #[arg(long, value_name = "MILLISECONDS")]
    handshake_max_stall: Option<u64>,
    /// Message size from which two threads seal, if CPUs idle beside a busy loop. `auto` takes a size at which this pays, `off`
    /// seals all messages in their loops. Only with the engine fused.
    #[arg(long, value_name = "BYTES", default_value = "off", value_parser = large)]
    offload_records: Large,
    /// Helper threads for these messages. Default: one per CPU but one, at most 3.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    record_threads: Option<u16>,
}

/// The size from which several threads seal a message, if any.
#[derive(Clone, Copy, Debug)]
struct Large(Option<usize>);

fn large(text: &str) -> Result<Large, String> {
    match text {
        "off" => Ok(Large(None)),
        "auto" => Ok(Large(Some(Records::default().min_message))),
        _ => amount::some_bytes(text)
            .map(|bytes| Large(Some(bytes)))
            .map_err(|error| format!("{error}; or auto, or off")),
    }
}

impl OffloadArguments {
    pub(super) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        let offload = &mut config.offload;
        offload.threads = self.handshake_threads.map(usize::from);
        offload.min_signature = self.handshake_min_signature.map_or(offload.min_signature, Duration::from_micros);
        offload.max_waiting = self.handshake_max_waiting.unwrap_or(offload.max_waiting);
        offload.max_wait = self.handshake_max_wait.map_or(offload.max_wait, Duration::from_millis);
        if let Some(longest) = self.handshake_max_stall {
            offload.max_stall = (longest > 0).then(|| Duration::from_millis(longest));
        }
        let threads = self.record_threads.map(usize::from);
        let Large(min_message) = self.offload_records;
        if threads.is_some() && min_message.is_none() {
            return Err(Failure::usage("--record-threads needs --offload-records"));
        }
        offload.records = min_message.map(|bytes| {
            let mut records = Records::default().with_min_message(bytes);
            records.threads = threads;
            records
        });
        Ok(())
    }
}

/// Prints the counters of all loops on standard error.
pub(super) fn report_counters(shards: &[ShardHandle], reloader: &Reloader, min_signature: Option<Duration>) {
    let mut sum = Counters::default();
    shards.iter().for_each(|shard| sum.merge(&shard.counters()));
    let keys = keys(&reloader.key_costs(), min_signature, reloader.reloads());
    output::report(Level::Info, format_args!("{}{keys}", lines(&sum)));
}

fn lines(counters: &Counters) -> String {
    let Counters { accepted, open, opened, resumed, handshakes_failed: failed, .. } = counters;
    let Counters { handshakes_offloaded: done, handshakes_refused: refused, handshakes_stalled: stalled, .. } =
        counters;
    let Counters { messages_in, messages_out, messages_dropped: dropped, bytes_in, bytes_out, .. } = counters;
    let Counters { seals_offloaded: asked, seals_helped: helped, seals_late: late, .. } = counters;
    let mut lines = format!(
        "connections: {accepted} accepted, {failed} failed in their handshake, {opened} opened, {resumed} of them resumed, \
         {open} of them open\n\
         handshakes on other threads: {done} done, {stalled} of them stalled, {refused} refused\n\
         messages: {messages_in} in, {messages_out} out, {dropped} dropped; {bytes_in} bytes in, {bytes_out} out\n"
    );
    lines += &http2(counters);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    lines += &format!(
        "memory: {:.1} MiB (connections {:.1}, handshakes {:.1}, partial messages {:.1}, sending {:.1}, queues {:.1}, \
         compression {:.1}, requests {:.1}, topics {:.1}, timers {:.1}, sources {:.1}, application {:.1}, \
         unused buffers {:.1}, commands {:.1}, published {:.1}); {} refused, {} closed for it\n",
        mebibytes(counters.memory()),
        mebibytes(counters.memory_connections),
        mebibytes(counters.memory_heads),
        mebibytes(counters.memory_partial),
        mebibytes(counters.memory_sending),
        mebibytes(counters.memory_queued),
        mebibytes(counters.memory_deflate),
        mebibytes(counters.memory_requests),
        mebibytes(counters.memory_topics),
        mebibytes(counters.memory_timers),
        mebibytes(counters.memory_sources),
        mebibytes(counters.memory_application),
        mebibytes(counters.memory_pooled),
        mebibytes(counters.memory_commands),
        mebibytes(counters.memory_published),
        counters.connections_refused,
        counters.memory_closed
    );
    lines += &limits(counters);
    if *asked > 0 {
        lines += &format!("records on other threads: asked {asked} times, helped {helped} times, late {late} times\n");
    }
    lines
}

/// A line about HTTP/2; empty if no client has spoken it.
fn http2(counters: &Counters) -> String {
    let Counters { carriers, carrying, carried, carriers_failed: failed, .. } = counters;
    let refused = counters.streams_refused
        + counters.stream_windows_exceeded
        + counters.stream_heads_too_big
        + counters.streams_faulty;
    if *carriers == 0 {
        return String::new();
    }
    format!(
        "http/2: {carriers} connections, {carrying} of them present, {failed} ended for a fault; {carried} streams present, \
         {refused} refused or reset for a fault\n"
    )
}

/// A line about the limits that peers met; empty if they met none.
fn limits(counters: &Counters) -> String {
    let met = [
        ("max_connections", counters.accept_pauses),
        ("max_handshakes", counters.handshakes_evicted),
        ("max_http", counters.http_evicted),
        ("max_message", counters.messages_too_big),
        ("head", counters.heads_too_big),
        ("max_subscriptions", counters.subscriptions_refused),
        ("pause_receive_above", counters.receive_pauses),
        ("slow_consumer", counters.slow_consumers),
        ("handshake", counters.missed_handshake),
        ("idle", counters.missed_idle),
        ("silence", counters.missed_silence),
        ("close", counters.missed_close),
        ("send", counters.missed_send),
    ];
    let met: Vec<_> = met.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if met.is_empty() { String::new() } else { format!("limits met: {}\n", met.join(", ")) }
}

/// Lines about the kinds of keys and the reloads; empty without TLS. Handshakes leave the loop from `min_signature` on.
fn keys(costs: &[KeyCost], min_signature: Option<Duration>, reloads: Reloads) -> String {
    let line = |KeyCost { kind, certificates, time, .. }: &KeyCost| {
        let leave = min_signature.is_some_and(|least| *time >= least);
        let place = if leave { "on other threads" } else { "in the loop" };
        format!("key {kind}: a signature takes {time:.1?}, full handshakes {place}; certificates: {certificates}\n")
    };
    let Reloads { done, failed, .. } = reloads;
    let mut lines: String = costs.iter().map(line).collect();
    if done + failed > 0 {
        lines += &format!("certificates: reloaded {done} times, refused {failed} times\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{keys, lines};
    use std::time::Duration;
    use tautline::{Counters, KeyCost, Reloads};

    #[test]
    fn records_are_reported_only_if_help_was_asked_for() {
        let mut counters = Counters::default();
        counters.handshakes_offloaded = 7;
        counters.handshakes_stalled = 2;
        counters.handshakes_refused = 3;
        assert!(lines(&counters).contains("handshakes on other threads: 7 done, 2 of them stalled, 3 refused\n"));
        assert!(!lines(&counters).contains("records"));
        let mut others = counters;
        (others.seals_offloaded, others.seals_helped, others.seals_late) = (5, 4, 1);
        counters.merge(&others);
        let expected = "14 done, 4 of them stalled, 6 refused|records on other threads: asked 5 times, helped 4 times, late 1 times\n";
        assert!(expected.split('|').all(|part| lines(&counters).contains(part)), "{}", lines(&counters));
    }

    #[test]
    fn http2_is_reported_once_a_client_speaks_it() {
        let mut counters = Counters::default();
        assert!(!lines(&counters).contains("http/2"));
        (counters.carriers, counters.carrying, counters.carried, counters.carriers_failed) = (5, 2, 30, 1);
        (counters.streams_refused, counters.streams_faulty) = (3, 4);
        let expected = "\nhttp/2: 5 connections, 2 of them present, 1 ended for a fault; 30 streams present, \
                        7 refused or reset for a fault\n";
        assert!(lines(&counters).contains(expected), "{}", lines(&counters));
    }

    #[test]
    fn keys_are_reported_with_the_place_of_their_handshakes() {
        let cost = |kind: &str, micros| KeyCost::new(kind, 1, Duration::from_micros(micros));
        let costs = [cost("RSA-2048", 330), cost("ECDSA-256", 20)];
        let report = keys(&costs, Some(Duration::from_micros(200)), Reloads::default());
        let expected = "key RSA-2048: a signature takes 330.0µs, full handshakes on other threads; certificates: 1\n\
                        key ECDSA-256: a signature takes 20.0µs, full handshakes in the loop; certificates: 1\n";
        assert_eq!(report, expected);
        let mut reloads = Reloads::default();
        (reloads.done, reloads.failed) = (3, 1);
        let report = keys(&costs[..1], None, reloads);
        assert!(
            report.contains("in the loop") && report.ends_with("certificates: reloaded 3 times, refused 1 times\n"),
            "{report}"
        );
        assert_eq!(keys(&[], None, Reloads::default()), "");
    }
}
