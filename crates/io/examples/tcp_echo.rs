//! A bare TCP echo over the epoll driver: the limit that every layer above it is measured against.
//!
//! ```sh
//! cargo run --release -p tautline-io --example tcp_echo -- 127.0.0.1:7000
//! ```

use std::io;
use tautline_io::{Address, Driver, End, ListenOptions, Listener, Received, Sent, Sink, Token, epoll};
use tautline_window::Buf;

/// Sends back what arrives. A connection whose peer does not read is not received from until it does.
#[derive(Default)]
struct Echo {
    spare: Vec<Buf>,
}

impl<D: Driver> Sink<D> for Echo {
    fn accepted(&mut self, _: &mut D, _: Token, _: Listener) {}

    fn connected(&mut self, _: &mut D, _: Token) {}

    fn received(&mut self, driver: &mut D, token: Token, data: Received<'_>) {
        let mut buf = self.spare.pop().unwrap_or_default();
        buf.put(data.bytes());
        match driver.send(token, buf) {
            Sent::Done(buf) => self.spare.push(buf),
            Sent::Pending => driver.pause_receive(token, true),
        }
    }

    fn sent(&mut self, driver: &mut D, token: Token, buf: Buf) {
        self.spare.push(buf);
        driver.pause_receive(token, false);
    }

    fn ended(&mut self, driver: &mut D, token: Token, end: End) {
        driver.close(token, matches!(end, End::Failed(_)));
    }

    fn woken(&mut self, _: &mut D) {}

    fn accept_failed(&mut self, _: &mut D, error: io::Error) {
        eprintln!("cannot accept: {error}");
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".into());
    let address: Address = address.parse()?;
    let mut driver = epoll::Driver::new()?;
    let (_, address) = driver.listen(&address, &ListenOptions::default())?;
    println!("echoing at {address}");
    let mut echo = Echo::default();
    loop {
        driver.turn(None, &mut echo)?;
    }
}
