//! A shard within the loop of somebody else: one thread waits for the shard and for a pipe of its own.
//!
//! ```text
//! cargo run -p tautline --example foreign_loop -- [ADDRESS]
//! ```
//! A loop that has a poller needs three things of a shard: a descriptor to wait for, the time of the next deadline,
//! and a turn that does not wait. Lines that are typed here go to all clients.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tautline::{Address, Config, Conn, DriverConfig, Handler, ListenOptions, Message, Outgoing, Plain, Shard};

struct Echo;

impl Handler for Echo {
    type State = ();
    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        conn.send(Outgoing::from(&message));
    }
}

/// Serves, and sends what `input` says to all clients, until the input ends.
fn run(shard: &mut Shard<Plain, Echo>, mut input: impl Read + AsFd) -> std::io::Result<()> {
    let mut line = [0; 1000];
    loop {
        let wait = shard.next_deadline().and_then(|wait| Timespec::try_from(wait).ok());
        let is_typed = {
            let shard = shard.poll_fd()?;
            let mut ready = [PollFd::new(&shard, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
            poll(&mut ready, wait.as_ref())?;
            !ready[1].revents().is_empty()
        };
        if is_typed {
            match input.read(&mut line)? {
                0 => return Ok(()),
                len => {
                    let text = String::from_utf8_lossy(&line[..len]);
                    // The loop is this one, so its queue has room.
                    shard.handle().broadcast(Outgoing::text(text.trim_end())).map_err(std::io::Error::other)?;
                }
            }
        }
        shard.turn(Some(Duration::ZERO))?;
    }
}

fn start(driver: &DriverConfig, address: &Address) -> std::io::Result<(Shard<Plain, Echo>, Address)> {
    let mut shard = Shard::new(0, Arc::new(Config::default()), Plain, driver.open()?, Echo)?;
    let address = shard.listen(address, &ListenOptions::default())?;
    Ok((shard, address))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into()).parse()?;
    let (mut shard, address) = start(&DriverConfig::default(), &address)?;
    println!("listening on ws://{address}; what you type goes to all clients");
    Ok(run(&mut shard, std::io::stdin())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tautline::{DriverConfig, Plain};

    #[test]
    fn a_shard_runs_within_another_loop() {
        for driver in ["epoll", "uring"] {
            let driver = driver.parse::<DriverConfig>().unwrap().available();
            let (mut shard, address) = start(&driver, &"127.0.0.1:0".parse().unwrap()).unwrap();
            let (input, mut typed) = std::os::unix::net::UnixStream::pair().unwrap();
            let client = std::thread::spawn(move || {
                let mut client = tautline::connect(&format!("ws://{address}/")).unwrap();
                for size in [1, 1000, 1_000_000] {
                    client.binary(&vec![7; size]).unwrap();
                    assert_eq!(client.receive().unwrap().data().len(), size);
                }
                typed.write_all(b"news\n").unwrap();
                assert_eq!(client.receive().unwrap().data(), b"news");
            });
            run(&mut shard, input).unwrap();
            client.join().unwrap();
        }
    }

    #[test]
    fn a_driver_that_nobody_can_wait_for() {
        let driver = "select".parse::<DriverConfig>().unwrap().open().unwrap();
        let shard = Shard::new(0, Arc::new(Config::default()), Plain, driver, Echo).unwrap();
        let why = shard.poll_fd().unwrap_err().to_string();
        assert!(why.contains("take epoll"), "{why}");
    }
}
