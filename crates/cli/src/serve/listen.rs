use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use tautline::Address;

/// All addresses that one `--listen` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listen(pub(super) Vec<Address>);

/// Understands `IP:PORT`, `unix:PATH`, `:PORT` for all interfaces, and `NAME:PORT` for the addresses of a name.
pub(super) fn listen(text: &str) -> Result<Listen, String> {
    if let Ok(address) = text.parse() {
        return Ok(Listen(vec![address]));
    }
    let (name, port) = text.rsplit_once(':').ok_or("write IP:PORT, NAME:PORT, :PORT or unix:PATH")?;
    let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port: write a number up to 65535"))?;
    let mut found: Vec<SocketAddr> = if name.is_empty() {
        vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()]
    } else {
        let resolved = (name, port).to_socket_addrs();
        resolved.map_err(|error| format!("cannot resolve {name:?}: {error}"))?.collect()
    };
    // The user named a family of addresses by neither form, so one that this machine lacks is left out.
    let has_ipv6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    found.retain(|address| address.is_ipv4() || has_ipv6);
    found.dedup();
    let addresses: Vec<Address> = found.into_iter().map(Address::Tcp).collect();
    if addresses.is_empty() { Err(format!("{name:?} has no address here")) } else { Ok(Listen(addresses)) }
}

/// Understands the mode of a Unix socket's file, in octal: three digits, as chmod(1) takes them, after `0` or `0o` if at all.
pub(super) fn unix_mode(text: &str) -> Result<u32, String> {
    let rest = text.strip_prefix("0o").or_else(|| text.strip_prefix('0').filter(|rest| rest.len() == 3));
    let digits = rest.unwrap_or(text);
    let is_mode = digits.len() == 3 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    let mode = u32::from_str_radix(digits, 8).ok().filter(|_| is_mode);
    mode.ok_or_else(|| "write three octal digits, such as 660 for owner and group, or 666 for everybody".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        listen(text).unwrap().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ports_alone_mean_all_interfaces() {
        let all = texts(":8443");
        assert!(all[0] == "0.0.0.0:8443" && all[1..].iter().all(|address| address == "[::]:8443"), "{all:?}");
        assert_eq!(texts("[::1]:1"), ["[::1]:1"]);
        assert_eq!(texts("unix:/run/taut.sock"), ["unix:/run/taut.sock"]);
    }

    #[test]
    fn names_are_resolved() {
        assert!(texts("localhost:8443").contains(&"127.0.0.1:8443".to_owned()));
        for (bad, reason) in [("8443", "write IP:PORT"), ("localhost:x", "is no port"), (":70000", "is no port")] {
            let told = listen(bad).unwrap_err();
            assert!(told.contains(reason), "{bad}: {told}");
        }
        assert!(listen("no.such.name.invalid:1").unwrap_err().contains("cannot resolve"));
    }

    #[test]
    fn modes_are_octal() {
        for text in ["660", "0660", "0o660"] {
            assert_eq!(unix_mode(text), Ok(0o660), "{text}");
        }
        assert_eq!(unix_mode("006"), Ok(0o006));
        for bad in ["", "0", "0o", "66", "668", "1777", "02770", "+66", "rw-", "0x1b0"] {
            assert!(unix_mode(bad).unwrap_err().contains("three octal digits"), "{bad}");
        }
    }
}
