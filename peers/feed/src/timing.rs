//! CPU time per message, of decoders that take turns.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

/// Rounds in which every decoder has one turn. The median over rounds is reported.
const ROUNDS: usize = 101;
/// Passes over all messages in a turn, which is over before the scheduler ends it.
const PASSES: usize = 4;

/// CPU time of this thread in seconds: other programs of the machine do not count.
pub fn now() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// A decoder with its name.
pub struct Decoder<'a, T> {
    pub name: &'static str,
    pub decode: Box<dyn Fn(&[u8]) -> T + 'a>,
}

/// Measures all decoders over the messages and prints a table. They must agree.
pub fn compare<T: PartialEq + std::fmt::Debug>(title: &str, messages: &[Vec<u8>], decoders: &[Decoder<'_, T>]) {
    for message in messages {
        let first = (decoders[0].decode)(message);
        for decoder in decoders {
            let text = String::from_utf8_lossy(message);
            assert_eq!((decoder.decode)(message), first, "{} and {}: {text}", decoders[0].name, decoder.name);
        }
    }
    let bytes = messages.iter().map(Vec::len).sum::<usize>() / messages.len();
    let only = std::env::args().nth(1);
    let decoders: Vec<&Decoder<'_, T>> =
        decoders.iter().filter(|decoder| only.as_ref().is_none_or(|only| decoder.name == only)).collect();
    println!("{title}, {bytes} bytes on average, {} messages", messages.len());
    let mut times = vec![Vec::new(); decoders.len()];
    for _ in 0..ROUNDS {
        for (decoder, times) in decoders.iter().zip(&mut times) {
            let begin = now();
            for _ in 0..PASSES {
                for message in messages {
                    black_box((decoder.decode)(black_box(message)));
                }
            }
            times.push((now() - begin) * 1e9 / (PASSES * messages.len()) as f64);
        }
    }
    for (decoder, times) in decoders.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("  {:<28} {:>8.1} ns  (fastest {:.1})", decoder.name, times[ROUNDS / 2], times[0]);
    }
}
