//! Networks of source addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network, such as `10.0.0.0/8`. One address is a network of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// Whether it has this address. One of version 4 that is mapped into version 6 counts as version 4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                network.to_bits().checked_shr(shift).unwrap_or(0) == address.to_bits().checked_shr(shift).unwrap_or(0)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                network.to_bits().checked_shr(shift).unwrap_or(0) == address.to_bits().checked_shr(shift).unwrap_or(0)
            }
            _ => false,
        }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let how =
            || format!("{text:?} is no network: write an address or one with a length, as 10.0.0.0/8 or 2001:db8::/32");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address = address.parse::<IpAddr>().map_err(|_| how())?.to_canonical();
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| how())?;
        if bits > most || text.contains('+') {
            return Err(how());
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_share_its_first_bits() {
        let has = |prefix: &str, address: &str| prefix.parse::<Prefix>().unwrap().contains(address.parse().unwrap());
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("10.0.0.7", "10.0.0.7") && has("10.0.0.7", "::ffff:10.0.0.7") && !has("10.0.0.7", "10.0.0.6"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("2001:db8::/32", "2001:db8:1::1") && !has("2001:db8::/32", "2001:db9::"));
        assert!(has("::/0", "::1") && !has("::1", "::2"));
    }

    #[test]
    fn other_texts_are_no_networks() {
        for bad in ["", "10", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "::/129", "a/8"] {
            assert!(bad.parse::<Prefix>().unwrap_err().contains("10.0.0.0/8"), "{bad}");
        }
    }
}
