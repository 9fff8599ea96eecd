//! Measures what logins cost the others: latency of echoes, quiet and with a number of logins a second.
//!
//! ```text
//! cargo run --release -p tautline-tokio --example tokio_logins -- [LOGINS_A_SECOND] [SECONDS]
//! ```
//! The server is the example `chat`, with one loop on the first CPU. Each login asks its "database" on tokio, which takes
//! 50 ms. All clients are on the last CPU. Both phases last as long as you say, and alternate five times.

#[path = "chat.rs"]
#[allow(dead_code, unreachable_pub, reason = "this starts the server, and leaves out its `main`")]
mod chat;

use std::time::{Duration, Instant};
use tautline::layers::io::machine;
use tautline::{Address, CloseCode};
use tautline_tokio::{Connector, Error, Target, WebSocket};
use tokio::net::TcpStream;

/// Connections whose echoes are timed, and their pace.
const PROBES: u32 = 20;
const EVERY: Duration = Duration::from_millis(10);

/// Enters a room.
async fn enter(server: &str, room: &str) -> Result<WebSocket<TcpStream>, Error> {
    let mut target = Target::new(&format!("{server}/{room}"))?;
    target.headers.insert("cookie", http::HeaderValue::from_static("user=ada"));
    let mut socket = Connector::plain().connect(target).await?;
    socket.recv().await?; // "ada joins"
    Ok(socket)
}

/// Times what the user says in a room of its own, until `end`.
async fn probe(server: &str, number: u32, end: Instant) -> Result<Vec<Duration>, Error> {
    let mut socket = enter(server, &format!("probe{number}")).await?;
    // The probes do not send together.
    tokio::time::sleep(EVERY / PROBES * number).await;
    let mut ticks = tokio::time::interval(EVERY);
    let mut times = Vec::new();
    while Instant::now() < end {
        ticks.tick().await;
        let begin = Instant::now();
        socket.text("a short message").await?;
        socket.recv().await?;
        times.push(begin.elapsed());
    }
    socket.close(CloseCode::NORMAL, "").await?;
    Ok(times)
}

/// Logs in, and leaves. Whether that worked.
async fn login(server: String) -> bool {
    let Ok(mut socket) = enter(&server, "crowd").await else { return false };
    socket.close(CloseCode::NORMAL, "").await.is_ok()
}

/// One phase with this number of logins a second. Returns the sorted times of echoes, and the logins that worked.
async fn phase(uri: &str, logins: u32, length: Duration) -> (Vec<Duration>, usize) {
    let end = Instant::now() + length;
    let probes: Vec<_> = (0..PROBES)
        .map(|number| {
            let uri = uri.to_owned();
            tokio::spawn(async move { probe(&uri, number, end).await.unwrap_or_default() })
        })
        .collect();
    let mut arriving = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / logins.max(1));
    while logins > 0 && Instant::now() < end {
        ticks.tick().await;
        arriving.push(tokio::spawn(login(uri.to_owned())));
    }
    let mut times = Vec::new();
    for probe in probes {
        times.extend(probe.await.unwrap_or_default());
    }
    let mut worked = 0;
    for login in arriving {
        worked += usize::from(login.await.unwrap_or_default());
    }
    times.sort_unstable();
    (times, worked)
}

fn percentile(times: &[Duration], part: usize) -> Duration {
    times.get(times.len() * part / 100).copied().unwrap_or_default()
}

/// Runs quiet and loud phases in turn. Returns the medians of their p99, and the logins that worked.
fn measure(logins: u32, length: Duration, rounds: usize) -> Result<(Duration, Duration, usize), tautline::Error> {
    let database = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build();
    let machine = |error| tautline::Error::Machine { what: "cannot start a runtime", error };
    let database = database.map_err(machine)?;
    let cpus = machine::cpus().map_err(machine)?;
    // A new thread runs where its parent does.
    if let Some(first) = cpus.first() {
        machine::pin_to_cpu(*first).map_err(machine)?;
    }
    let address = "127.0.0.1:0".parse().unwrap_or(Address::UnixUnnamed);
    let server = chat::serve(address, 1, database.handle())?;
    let uri = format!("ws://{}", server.addresses()[0]);
    if let Some(last) = cpus.last() {
        machine::pin_to_cpu(*last).map_err(machine)?;
    }
    let clients = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(machine)?;
    let (mut quiet, mut loud, mut total) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        let (times, _) = clients.block_on(phase(&uri, 0, length));
        quiet.push(percentile(&times, 99));
        println!(
            "quiet:  p50 {:?}, p99 {:?} of {} echoes",
            percentile(&times, 50),
            percentile(&times, 99),
            times.len()
        );
        let (times, worked) = clients.block_on(phase(&uri, logins, length));
        loud.push(percentile(&times, 99));
        total += worked;
        println!(
            "logins: p50 {:?}, p99 {:?} of {} echoes, {worked} logins",
            percentile(&times, 50),
            percentile(&times, 99),
            times.len()
        );
    }
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    server.join()?;
    let median = |mut values: Vec<Duration>| {
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Ok((median(quiet), median(loud), total))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse());
    let logins = numbers.next().transpose()?.unwrap_or(1000);
    let seconds = numbers.next().transpose()?.unwrap_or(5);
    let (quiet, loud, _) = measure(logins, Duration::from_secs(seconds.into()), 5)?;
    println!("median p99: quiet {quiet:?}, with {logins} logins a second {loud:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler that waited for the database would let at most 20 clients in per second.
    #[test]
    fn logins_do_not_wait_for_each_other() {
        let (_, _, worked) = measure(200, Duration::from_secs(1), 1).unwrap();
        assert!(worked > 60, "{worked}");
    }
}
