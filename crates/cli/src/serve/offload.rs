//! What leaves the loops, and how it is told.

use crate::failure::Failure;
use std::time::Duration;
use tautline::{Config, Counters, Records, Remote};

/// Handshakes and records on other threads.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Loops and limits")]
pub(super) struct OffloadArguments {
    /// Threads for handshakes with an expensive signature (RSA); 0 leaves them in their loop. Without it, one for each two
    /// CPUs.
    #[arg(long, value_name = "N")]
    handshake_threads: Option<usize>,
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
    #[arg(long, value_name = "N")]
    record_threads: Option<usize>,
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
        offload.threads = self.handshake_threads;
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
        let threads = self.record_threads;
        offload.records = match self.offload_records {
            Large::None if threads.is_some() => return Err(Failure::usage("--record-threads needs --offload-records")),
            Large::None => None,
            Large::From(min_message) => Some(Records { min_message, threads }),
        };
        Ok(())
    }
}

/// Tells on standard error what all loops did so far.
pub(super) fn tell_counters(remotes: &[Remote]) {
    let mut sum = Counters::default();
    for counters in remotes.iter().filter_map(|remote| remote.counters().ok()) {
        sum.merge(&counters);
    }
    eprint!("{}", lines(&sum));
}

fn lines(counters: &Counters) -> String {
    let Counters { accepted, open, opened, handshakes_failed: failed, .. } = counters;
    let Counters { handshakes_offloaded: beside, handshakes_refused: refused, handshakes_stalled: stalled, .. } =
        counters;
    let Counters { messages_in, messages_out, messages_dropped: dropped, bytes_in, bytes_out, .. } = counters;
    let Counters { seals_offloaded: asked, seals_helped: helped, seals_late: late, .. } = counters;
    let mut lines = format!(
        "connections: {accepted} accepted, {failed} failed in their handshake, {opened} opened, {open} of them open\n\
         handshakes on other threads: {beside} done, {stalled} of them stalled, {refused} refused\n\
         messages: {messages_in} in, {messages_out} out, {dropped} dropped; {bytes_in} bytes in, {bytes_out} out\n"
    );
    if *asked > 0 {
        lines += &format!("records on other threads: asked {asked} times, helped {helped} times, late {late} times\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::lines;
    use tautline::Counters;

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
}
