//! `--proxy-protocol-from` and `--forwarded-from`: the proxies before the server, or before `taut proxy`.

use tautline::{Config, ForwardedHeader, Prefix};

/// The proxies that tell where a client comes from.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Proxies in front")]
pub(super) struct ProxiedArguments {
    /// Proxies whose connections begin with a header of the PROXY protocol, version 1 or 2: an address, a network such as
    /// 10.0.0.0/8, or `unix` for Unix sockets. Connections of others are reset. May be repeated.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    proxy_protocol_from: Vec<Prefix>,
    /// Serve others than --proxy-protocol-from too. They send no header, and none is believed.
    #[arg(long, requires = "proxy_protocol_from")]
    others_without_header: bool,
    /// Proxies whose requests name the client in X-Forwarded-For: an address, a network, or `unix`. The client is the last
    /// address there that is none of these. May be repeated.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    forwarded_from: Vec<Prefix>,
    /// Header in which they do: x-forwarded-for, or forwarded (RFC 7239). All of them must write it.
    #[arg(long, value_name = "NAME", default_value = "x-forwarded-for", requires = "forwarded_from")]
    forwarded_header: ForwardedHeader,
}

impl ProxiedArguments {
    pub(super) fn apply(&self, config: &mut Config) {
        config.front.proxy_protocol_from = self.proxy_protocol_from.iter().copied().collect();
        config.front.others_without_header = self.others_without_header;
        config.front.forwarded_from = self.forwarded_from.iter().copied().collect();
        config.front.forwarded_header = self.forwarded_header;
    }
}
