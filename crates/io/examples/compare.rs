//! Compares what drivers cost, message by message, on a machine that does other things too.
//!
//! Each driver echoes for the same number of connections, whose other ends are in this thread: it writes one message
//! on each, takes the time that the driver needs to echo them all, and reads the replies. Rounds of all drivers
//! alternate, and medians are printed, so that neither the scheduler nor a busy neighbour decides; but nobody waits,
//! so waking up is not in the figures.
//!
//! ```sh
//! taskset -c 0 cargo run --profile dist -p tautline-io --example compare -- 64 100 2000 epoll uring
//! ```

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_io::echo::Echo;
use tautline_io::{Address, Driver, DriverConfig, End, ListenOptions, Listener, Received, Sink, Token};

/// Counts what [`Echo`] sends back.
#[derive(Default)]
struct Counting {
    echo: Echo,
    accepted: usize,
    bytes: usize,
}

impl Sink for Counting {
    fn accepted(&mut self, _: &mut dyn Driver, _: Token, _: Listener) {
        self.accepted += 1;
    }
    fn connected(&mut self, _: &mut dyn Driver, _: Token) {}
    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>) {
        self.bytes += data.len();
        self.echo.received(driver, token, data);
    }
    fn sent(&mut self, driver: &mut dyn Driver, token: Token, buf: Buf) {
        self.echo.sent(driver, token, buf);
    }
    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End) {
        self.echo.ended(driver, token, end);
    }
    fn woken(&mut self, _: &mut dyn Driver) {}
    fn accept_failed(&mut self, driver: &mut dyn Driver, error: io::Error) {
        self.echo.accept_failed(driver, error);
    }
}

/// A driver with its connections.
struct Subject {
    driver: Box<dyn Driver>,
    sink: Counting,
    peers: Vec<TcpStream>,
}

impl Subject {
    fn new(config: &DriverConfig, connections: usize) -> io::Result<Self> {
        let mut driver = config.open()?;
        let (_, at) = driver.listen(&Address::Tcp(([127, 0, 0, 1], 0).into()), &ListenOptions::default())?;
        let (mut sink, mut peers) = (Counting::default(), Vec::new());
        while peers.len() < connections {
            let peer = TcpStream::connect(at.to_string())?;
            peer.set_nodelay(true)?;
            peers.push(peer);
            while sink.accepted < peers.len() {
                driver.turn(Some(Duration::from_secs(1)), &mut sink)?;
            }
        }
        Ok(Self { driver, sink, peers })
    }

    /// Echoes one message on each connection; returns the nanoseconds that the driver took for each.
    fn round(&mut self, message: &[u8], reply: &mut [u8]) -> io::Result<f64> {
        for peer in &mut self.peers {
            peer.write_all(message)?;
        }
        let goal = self.sink.bytes + message.len() * self.peers.len();
        let start = Instant::now();
        while self.sink.bytes < goal {
            self.driver.turn(Some(Duration::from_secs(1)), &mut self.sink)?;
        }
        let spent = start.elapsed();
        for peer in &mut self.peers {
            peer.read_exact(reply)?;
        }
        Ok(spent.as_nanos() as f64 / self.peers.len() as f64)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [size, connections, rounds, drivers @ ..] = &arguments[..] else {
        return Err("arguments: SIZE CONNECTIONS ROUNDS DRIVER...".into());
    };
    let (size, connections, rounds): (usize, usize, usize) = (size.parse()?, connections.parse()?, rounds.parse()?);
    let mut subjects = Vec::new();
    for name in drivers {
        let config = name.parse::<DriverConfig>()?.available();
        subjects.push((config.name().to_owned(), Subject::new(&config, connections)?, Vec::new()));
    }
    let (message, mut reply) = (vec![b'x'; size], vec![0; size]);
    for _ in 0..rounds {
        for (_, subject, spent) in &mut subjects {
            spent.push(subject.round(&message, &mut reply)?);
        }
    }
    println!("{size} B, {connections} connections, ns a message, and times the first driver");
    let mut first = None;
    for (name, _, mut spent) in subjects {
        spent.sort_by(f64::total_cmp);
        let (median, quarter) = (spent[spent.len() / 2], spent[spent.len() / 4]);
        let (of, of_quarter) = *first.get_or_insert((median, quarter));
        let (times, times_quarter) = (median / of, quarter / of_quarter);
        println!("{name:>8}  median {median:>8.0} x {times:.3}  lower quarter {quarter:>8.0} x {times_quarter:.3}");
    }
    Ok(())
}
