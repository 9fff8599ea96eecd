//! What leaves the loops, and how it is told.

use crate::failure::Failure;
use std::time::Duration;
use tautline::{Config, Counters, KeyCost, Records, Reloader, Reloads, Remote};

/// More threads than any machine has processors for are a slip, and may take the machine down.
const MOST_THREADS: i64 = 1024;

/// Handshakes and records on other threads.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Loops and limits")]
pub(super) struct OffloadArguments {
    /// Threads for handshakes with an expensive signature (RSA); 0 leaves them in their loop. Without it, one for each two
    /// CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=MOST_THREADS))]
    handshake_threads: Option<u16>,
    /// Signatures are expensive from so many microseconds on. What the keys take is logged with -v, and with -vv where it
    /// is less. Default: 200.
    #[arg(long, value_name = "MICROSECONDS")]
    handshake_min_signature: Option<u64>,
    /// Handshakes that may wait for these threads; further connections are reset at once. Default: 4096.
    #[arg(long, value_name = "N")]
    handshake_max_waiting: Option<usize>,
    /// Longest that they may have to wait; connections that would wait longer are reset at once. Default: 3000.
    #[arg(long, value_name = "MILLISECONDS")]
    handshake_max_wait: Option<u64>,
    /// Their threads run while nobody else does. Once they are not let run for so long, others of a higher priority take over;
    /// 0 leaves all to these. Default: 10.
    #[arg(long, value_name = "MILLISECONDS")]
    handshake_max_stall: Option<u64>,
    /// Have messages of at least so many bytes sealed by several threads at once, where processors idle beside a busy loop;
    /// `auto` is a size that is worth it, `off` leaves all of them in their loop. With fused only.
    #[arg(long, value_name = "BYTES", default_value = "off", value_parser = large)]
    offload_records: Large,
    /// Threads that help with these messages. Without it, one for each CPU but one, at most 3.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    record_threads: Option<u16>,
}

/// Which messages are sealed by several threads.
#[derive(Clone, Copy, Debug)]
enum Large {
    None,
    From(usize),
}

fn large(text: &str) -> Result<Large, String> {
    match text {
        "off" => Ok(Large::None),
        "auto" => Ok(Large::From(Records::default().min_message)),
        _ => text.parse().map(Large::From).map_err(|_| "neither a number of bytes, nor auto or off".to_owned()),
    }
}

impl OffloadArguments {
    pub(super) fn apply(&self, config: &mut Config) -> Result<(), Failure> {
        let offload = &mut config.offload;
        offload.threads = self.handshake_threads.map(usize::from);
        if let Some(shortest) = self.handshake_min_signature {
            offload.min_signature = Duration::from_micros(shortest);
        }
        if let Some(most) = self.handshake_max_waiting {
            offload.max_waiting = most;
        }
        if let Some(longest) = self.handshake_max_wait {
            offload.max_wait = Duration::from_millis(longest);
        }
        if let Some(longest) = self.handshake_max_stall {
            offload.max_stall = (longest > 0).then(|| Duration::from_millis(longest));
        }
        let threads = self.record_threads.map(usize::from);
        offload.records = match self.offload_records {
            Large::None if threads.is_some() => return Err(Failure::usage("--record-threads needs --offload-records")),
            Large::None => None,
            Large::From(min_message) => Some(Records { min_message, threads }),
        };
        Ok(())
    }
}

/// Tells on standard error what all loops did so far.
pub(super) fn tell_counters(remotes: &[Remote], reloader: &Reloader, min_signature: Option<Duration>) {
    let mut sum = Counters::default();
    for counters in remotes.iter().filter_map(|remote| remote.counters().ok()) {
        sum.merge(&counters);
    }
    eprint!("{}{}", lines(&sum), keys(&reloader.key_costs(), min_signature, reloader.reloads()));
}

fn lines(counters: &Counters) -> String {
    let Counters { accepted, open, opened, resumed, handshakes_failed: failed, .. } = counters;
    let Counters { handshakes_offloaded: beside, handshakes_refused: refused, handshakes_stalled: stalled, .. } =
        counters;
    let Counters { messages_in, messages_out, messages_dropped: dropped, bytes_in, bytes_out, .. } = counters;
    let Counters { seals_offloaded: asked, seals_helped: helped, seals_late: late, .. } = counters;
    let mut lines = format!(
        "connections: {accepted} accepted, {failed} failed in their handshake, {opened} opened, {resumed} of them resumed, \
         {open} of them open\n\
         handshakes on other threads: {beside} done, {stalled} of them stalled, {refused} refused\n\
         messages: {messages_in} in, {messages_out} out, {dropped} dropped; {bytes_in} bytes in, {bytes_out} out\n"
    );
    if *asked > 0 {
        lines += &format!("records on other threads: asked {asked} times, helped {helped} times, late {late} times\n");
    }
    lines
}

/// Keys, and how often they were replaced; nothing without TLS. Handshakes leave the loop where signing takes `min_signature`.
fn keys(costs: &[KeyCost], min_signature: Option<Duration>, reloads: Reloads) -> String {
    let told = |KeyCost { kind, certificates, time }: &KeyCost| {
        let leave = min_signature.is_some_and(|least| *time >= least);
        let place = if leave { "on other threads" } else { "in the loop" };
        format!("key {kind}: a signature takes {time:.1?}, full handshakes {place}; certificates: {certificates}\n")
    };
    let Reloads { done, failed } = reloads;
    let mut lines: String = costs.iter().map(told).collect();
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
    fn help_with_records_is_told_where_it_was_asked_for() {
        let mut counters =
            Counters { handshakes_offloaded: 7, handshakes_stalled: 2, handshakes_refused: 3, ..Counters::default() };
        assert!(lines(&counters).contains("handshakes on other threads: 7 done, 2 of them stalled, 3 refused\n"));
        assert!(!lines(&counters).contains("records"));
        counters.merge(&Counters { seals_offloaded: 5, seals_helped: 4, seals_late: 1, ..counters });
        let expected = "14 done, 4 of them stalled, 6 refused|records on other threads: asked 5 times, helped 4 times, late 1 times\n";
        assert!(expected.split('|').all(|part| lines(&counters).contains(part)), "{}", lines(&counters));
    }

    #[test]
    fn keys_are_told_with_what_is_made_of_them() {
        let cost =
            |kind: &str, micros| KeyCost { kind: kind.into(), certificates: 1, time: Duration::from_micros(micros) };
        let costs = [cost("RSA-2048", 330), cost("ECDSA-256", 20)];
        let told = keys(&costs, Some(Duration::from_micros(200)), Reloads::default());
        let expected = "key RSA-2048: a signature takes 330.0µs, full handshakes on other threads; certificates: 1\n\
                        key ECDSA-256: a signature takes 20.0µs, full handshakes in the loop; certificates: 1\n";
        assert_eq!(told, expected);
        let told = keys(&costs[..1], None, Reloads { done: 3, failed: 1 });
        assert!(
            told.contains("in the loop") && told.ends_with("certificates: reloaded 3 times, refused 1 times\n"),
            "{told}"
        );
        assert_eq!(keys(&[], None, Reloads::default()), "");
    }
}
