//! Measurements behind the recommendations, about a second in all. AEADs are measured by `tls_records` itself.

use rustix::process::getppid;
use rustls::SignatureScheme;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{ALL_KX_GROUPS, sign};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tautline::{ServerConfig, Tls, TlsEngine};
use tautline_dev_cert::Authority;
use tautline_lab::app::Demo;
use tautline_lab::load::{Echo, Server};
use tautline_lab::{Content, DriverKind, Span, loops};
use tautline_probe::group_name;

/// The results. Times are the fastest of many, since neighbours only make them longer.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) syscall_ns: f64,
    pub(super) clock_ns: f64,
    pub(super) copy: Copy,
    /// Key exchange of a server by group, in microseconds.
    pub(super) groups: Vec<(String, f64)>,
    /// A signature with an EC P-256 key, in microseconds.
    pub(super) signature_us: Option<f64>,
    pub(super) echoes: Vec<Echoed>,
    /// Share of the machine's CPU time that other programs and other machines of the host took during the echoes, 0 to 1.
    pub(super) others: Option<f64>,
}

/// Copies of 16 KiB within the cache, in GB/s.
#[derive(Clone, std::marker::Copy, Debug, Default)]
pub(super) struct Copy {
    /// Both ends begin at a multiple of 64 bytes.
    pub(super) aligned: f64,
    /// Source and destination begin 5 and 13 bytes behind one: a WebSocket payload behind a TLS record's header.
    pub(super) unaligned: f64,
}

/// A short echo over one driver.
#[derive(Clone, Debug)]
pub(super) struct Echoed {
    pub(super) driver: DriverKind,
    /// Messages of 64 bytes a second over 8 connections without TLS.
    pub(super) rate: f64,
    pub(super) p99_us: f64,
}

/// Time for each of the small measurements.
const SHORT: Duration = Duration::from_millis(15);

/// Time of an echo, the warm-up included.
const ECHO: Duration = Duration::from_millis(120);

impl Measured {
    /// Measures all, with echoes over these drivers.
    pub(super) fn here(drivers: &[DriverKind]) -> Self {
        let (others, echoes) = Others::during(|| drivers.iter().filter_map(|&driver| echo(driver)).collect());
        Self {
            others,
            echoes,
            syscall_ns: fastest_ns(|| _ = black_box(getppid())),
            clock_ns: fastest_ns(|| _ = black_box(Instant::now())),
            copy: copies(),
            groups: ALL_KX_GROUPS
                .iter()
                .filter_map(|group| Some((group_name(group.name()), exchange(*group)?)))
                .collect(),
            signature_us: signature(),
        }
    }

    /// The key exchange of a group, in microseconds.
    pub(super) fn group(&self, name: &str) -> Option<f64> {
        self.groups.iter().find(|(known, _)| known == name).map(|(_, us)| *us)
    }

    pub(super) fn echo(&self, driver: DriverKind) -> Option<&Echoed> {
        self.echoes.iter().find(|echoed| echoed.driver == driver)
    }

    /// Whether others took so much of the CPUs that echoes cannot be compared.
    pub(super) fn is_disturbed(&self) -> bool {
        self.others.is_some_and(|share| share > 0.1)
    }

    /// CPU time of a server's full handshake for its cryptography, in microseconds, by the group that browsers prefer.
    pub(super) fn handshake_us(&self) -> Option<f64> {
        Some(self.group("X25519MLKEM768")? + self.signature_us?)
    }
}

/// The machine's CPU time so far, in clock ticks since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Others {
    /// All time, idle or not.
    total: u64,
    /// The time that was not idle, less that of this process.
    taken: u64,
}

impl Others {
    /// Runs something, and returns the share of the CPU time that others took meanwhile, if the system tells it.
    fn during<T>(run: impl FnOnce() -> T) -> (Option<f64>, T) {
        let before = Self::now();
        let result = run();
        let share = before.zip(Self::now()).map(|(before, after)| after.share_since(before));
        (share, result)
    }

    fn now() -> Option<Self> {
        let read = |path| std::fs::read_to_string(path).ok();
        Self::parse(&read("/proc/stat")?, &read("/proc/self/stat")?)
    }

    /// From the texts of `/proc/stat` and `/proc/PID/stat`, see proc(5).
    fn parse(machine: &str, process: &str) -> Option<Self> {
        let line = machine.lines().next()?.strip_prefix("cpu ")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is part of user.
        let times: Vec<u64> = line.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
        let (total, idle) = (times.iter().sum::<u64>(), times.get(3)? + times.get(4)?);
        // The name in parentheses may hold anything. The fields behind it count from 3, and utime is field 14.
        let mut fields = process.rsplit(')').next()?.split_whitespace().skip(14 - 3);
        let own = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
        Some(Self { total, taken: (total - idle).saturating_sub(own) })
    }

    fn share_since(self, before: Self) -> f64 {
        let taken = self.taken.saturating_sub(before.taken) as f64;
        taken / self.total.saturating_sub(before.total).max(1) as f64
    }
}

/// Nanoseconds of the fastest of many batches.
fn fastest_ns(mut run: impl FnMut()) -> f64 {
    let (begin, mut fastest, mut batch) = (Instant::now(), f64::INFINITY, 1_u32);
    while begin.elapsed() < SHORT {
        let start = Instant::now();
        (0..batch).for_each(|_| run());
        let taken = start.elapsed();
        if taken < Duration::from_micros(50) {
            // Too short to be measured well.
            batch = batch.saturating_mul(2);
        } else {
            fastest = fastest.min(taken.as_secs_f64() * 1e9 / f64::from(batch));
        }
    }
    fastest
}

fn copies() -> Copy {
    const SIZE: usize = 16 << 10;
    let mut source = vec![1_u8; SIZE + 256];
    let mut target = vec![0_u8; SIZE + 256];
    let mut speed = |from: usize, to: usize| {
        let from = source.as_ptr().align_offset(64).min(64) + from;
        let to = target.as_ptr().align_offset(64).min(64) + to;
        let ns = fastest_ns(|| {
            target[to..to + SIZE].copy_from_slice(&source[from..from + SIZE]);
            black_box(&mut target);
            black_box(&mut source);
        });
        SIZE as f64 / ns
    };
    Copy { aligned: speed(0, 0), unaligned: speed(5, 13) }
}

/// A server's part of a key exchange, in microseconds.
fn exchange(group: &'static dyn SupportedKxGroup) -> Option<f64> {
    let client = group.start().ok()?.pub_key().to_vec();
    let ns = fastest_ns(|| drop(black_box(group.start_and_complete(&client))));
    Some(ns / 1e3)
}

/// A signature with an EC P-256 key, in microseconds.
fn signature() -> Option<f64> {
    let key = Authority::new("measured").ok()?.key();
    let key = sign::any_supported_type(&PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?).ok()?;
    let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256])?;
    let ns = fastest_ns(|| drop(black_box(signer.sign(&[7; 130]))));
    Some(ns / 1e3)
}

/// Echoes for a moment over one driver; `None` if it does not work.
fn echo(driver: DriverKind) -> Option<Echoed> {
    let plain = Tls { engine: TlsEngine::Plain, config: ServerConfig::default() };
    let server = tautline::Server::new(plain).driver(driver.config()).listen("127.0.0.1:0".parse().ok()?);
    let handle = loops::start_server(server, false, Box::new(|_| Box::new(Demo::Echo))).ok()?;
    let mut server = Server::new(&format!("ws://{}/", handle.addresses().first()?)).ok()?;
    server.driver = driver.config();
    let span = Span { warmup: ECHO / 4, duration: ECHO * 3 / 4 };
    let echo = Echo { server, connections: 8, size: 64, content: Content::Bytes, pipeline: 1, rate: None, span };
    let measured = echo.run(&mut |_| {});
    handle.drain(tautline::CloseCode::GOING_AWAY, "", Duration::ZERO);
    let _ = handle.join();
    let measured = measured.ok()?;
    Some(Echoed { driver, rate: measured.rate(), p99_us: measured.latencies.quantile_us(0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_others_is_what_is_neither_idle_nor_ours() {
        let machine = |user, idle| format!("cpu  {user} 10 100 {idle} 50 1 2 3 4 5\ncpu0 1 2 3 4\n");
        let process = |time| format!("7 (a) b c) S 1 2 3 4 5 6 7 8 9 10 {time} 20 0 0 20 0 1 0 9 9\n");
        let before = Others::parse(&machine(1000, 5000), &process(30)).unwrap();
        assert_eq!(before, Others { total: 6166, taken: 1116 - 50 });
        let after = Others::parse(&machine(1160, 5040), &process(110)).unwrap();
        assert!((after.share_since(before) - 80.0 / 200.0).abs() < 1e-9, "{after:?}");
        assert_eq!(Others::parse("cpu  1 2 3", "7 (a) S"), None);
        assert!(Others::now().is_some());
    }

    #[test]
    fn everything_is_measured() {
        let measured = Measured::here(&[DriverKind::Epoll]);
        assert!(measured.syscall_ns > 1.0 && measured.clock_ns > 1.0, "{measured:?}");
        assert!(measured.copy.aligned > 0.1 && measured.copy.unaligned > 0.1, "{measured:?}");
        assert!(measured.handshake_us().unwrap() > 1.0, "{measured:?}");
        let echoed = measured.echo(DriverKind::Epoll).unwrap();
        assert!(echoed.rate > 1.0 && echoed.p99_us > 1.0, "{echoed:?}");
    }
}
