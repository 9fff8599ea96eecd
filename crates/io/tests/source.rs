//! Outgoing connections come from the address that was asked for.

use std::net::{IpAddr, TcpListener};
use tautline_io::{Address, DriverConfig};

#[test]
fn connections_come_from_their_source() {
    let source: IpAddr = "127.0.0.9".parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap());
    for name in DriverConfig::NAMES {
        let config = name.parse::<DriverConfig>().unwrap().available();
        let mut driver = config.with_source(source).unwrap().open().unwrap();
        let _tokens = [driver.connect(&to).unwrap(), driver.connect(&to).unwrap()];
        for _ in 0..2 {
            assert_eq!(listener.accept().unwrap().1.ip(), source, "{name}");
        }
    }
}

#[test]
fn an_address_of_another_machine_is_refused() {
    let config = DriverConfig::default().with_source("192.0.2.1".parse().unwrap()).unwrap();
    assert!(config.open().unwrap().connect(&"127.0.0.1:9".parse().unwrap()).is_err());
}
