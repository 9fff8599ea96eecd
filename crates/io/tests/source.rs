//! Outgoing connections come from the address that was asked for.

use std::net::{IpAddr, TcpListener};
use tautline_io::{Address, DriverConfig, Source};

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

#[test]
fn each_connection_may_have_its_own_source() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = Address::Tcp(listener.local_addr().unwrap());
    for name in DriverConfig::NAMES {
        let config = name.parse::<DriverConfig>().unwrap().available();
        let mut driver = config.with_source("127.0.0.9".parse().unwrap()).unwrap().open().unwrap();
        let _tokens = ["127.0.0.7", "127.0.0.8"].map(|ip| {
            let source: IpAddr = ip.parse().unwrap();
            let token = driver.connect_from(&to, &Source::from(source).on_interface("lo")).unwrap();
            assert_eq!(listener.accept().unwrap().1.ip(), source, "{name}");
            token
        });
        // Only the interface is chosen here, so the driver's address remains.
        let _third = driver.connect_from(&to, &Source::default().on_interface("lo")).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), "127.0.0.9", "{name}");
        for wrong in ["", "no-such-if", "a-name-of-more-than-15-bytes"] {
            let error = driver.connect_from(&to, &Source::default().on_interface(wrong)).unwrap_err().to_string();
            assert!(error.contains(&format!("interface {wrong:?}")) && error.contains("ip link"), "{name}: {error}");
        }
    }
}
