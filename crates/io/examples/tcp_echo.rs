//! A bare TCP echo over any driver: the limit that every layer above it is measured against.
//!
//! ```sh
//! cargo run --release -p tautline-io --example tcp_echo -- 127.0.0.1:7000 epoll
//! ```

use std::sync::atomic::AtomicBool;
use tautline_io::{Address, DriverConfig, echo};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address: Address = arguments.next().as_deref().unwrap_or("127.0.0.1:7000").parse()?;
    let driver: DriverConfig = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let ready = |address: &Address| println!("echoing at {address}");
    Ok(echo::serve(&driver.available(), &address, ready, &AtomicBool::new(false))?)
}
