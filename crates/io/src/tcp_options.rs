use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io;
use std::time::Duration;

/// Options of TCP sockets, beside those that every socket here has: nothing waits for more (`TCP_NODELAY`), and the kernel holds
/// at most 1 MiB that is not sent (`TCP_NOTSENT_LOWAT`).
///
/// An option that is `None` stays as the machine has it (`net.ipv4.tcp_…`). They are for the kernel's TCP alone. Unix sockets
/// ignore them.
///
/// ```
/// # mod tautline { pub use tautline_io::{Keepalive, TcpOptions}; }
/// use std::time::Duration;
/// use tautline::{Keepalive, TcpOptions};
///
/// let mut options = TcpOptions::default();
/// options.user_timeout = Some(Duration::from_secs(5));
/// options.dscp = Some(46); // expedited forwarding (RFC 3246)
/// options.keepalive = Some(Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(2), probes: 3 });
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpOptions {
    /// Bytes for data that waits to be sent or acknowledged (`SO_SNDBUF`). The kernel doubles the number, bounds it by
    /// `net.core.wmem_max`, and no longer fits the buffer to the path.
    pub send_buffer: Option<usize>,
    /// Bytes for received data (`SO_RCVBUF`), which bound the window that the peer sees. As for `send_buffer`, with
    /// `net.core.rmem_max`.
    pub receive_buffer: Option<usize>,
    /// Time after which the kernel gives a connection up if data stays unacknowledged (`TCP_USER_TIMEOUT`, RFC 5482).
    pub user_timeout: Option<Duration>,
    /// Differentiated services code point of all packets, 0 to 63 (RFC 2474).
    pub dscp: Option<u8>,
    /// Congestion control by its name, such as `bbr` (`TCP_CONGESTION`). `net.ipv4.tcp_allowed_congestion_control` has the names
    /// that a user without privileges may choose.
    pub congestion: Option<String>,
    /// Probes of idle connections by the kernel. Pings do the same end to end: see `Deadlines::ping`.
    pub keepalive: Option<Keepalive>,
}

/// Probes of an idle connection by the kernel's TCP (`SO_KEEPALIVE`). Times are whole seconds, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Time without data before the first probe (`TCP_KEEPIDLE`).
    pub idle: Duration,
    /// Time between two probes (`TCP_KEEPINTVL`).
    pub interval: Duration,
    /// Probes without an answer before the connection is given up (`TCP_KEEPCNT`).
    pub probes: u32,
}

impl TcpOptions {
    /// Sets the options of a socket before it connects or listens. Accepted connections inherit those of their listener.
    ///
    /// # Errors
    /// The error of `setsockopt(2)`, with the option's name and the remedy.
    pub fn apply(&self, socket: impl AsFd, is_ipv6: bool) -> io::Result<()> {
        let fd = socket.as_fd();
        if let Some(bytes) = self.send_buffer {
            set("send buffer", sockopt::set_socket_send_buffer_size(fd, bytes))?;
        }
        if let Some(bytes) = self.receive_buffer {
            set("receive buffer", sockopt::set_socket_recv_buffer_size(fd, bytes))?;
        }
        if let Some(time) = self.user_timeout {
            let millis = time.as_millis().min(i32::MAX as u128);
            let millis = u32::try_from(millis).unwrap_or(u32::MAX);
            set("user timeout", sockopt::set_tcp_user_timeout(fd, millis))?;
        }
        if let Some(dscp) = self.dscp {
            if dscp > 63 {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the DSCP {dscp} is none of 0 to 63")));
            }
            // The lower two bits are those of congestion notification (RFC 3168), which the kernel sets.
            let class = dscp << 2;
            let done =
                if is_ipv6 { sockopt::set_ipv6_tclass(fd, class.into()) } else { sockopt::set_ip_tos(fd, class) };
            set("DSCP", done)?;
        }
        if let Some(name) = &self.congestion {
            set(&format!("congestion control {name:?}"), sockopt::set_tcp_congestion(fd, name))?;
        }
        if let Some(Keepalive { idle, interval, probes }) = self.keepalive {
            set("keepalive", sockopt::set_socket_keepalive(fd, true))?;
            set("keepalive's idle time", sockopt::set_tcp_keepidle(fd, idle))?;
            set("keepalive's interval", sockopt::set_tcp_keepintvl(fd, interval))?;
            set("keepalive's probes", sockopt::set_tcp_keepcnt(fd, probes))?;
        }
        Ok(())
    }
}

/// Names the option in an error.
fn set(what: &str, done: Result<(), Errno>) -> io::Result<()> {
    done.map_err(|errno| {
        let error = io::Error::from(errno);
        let remedy = match errno {
            Errno::NOENT => "; `sysctl net.ipv4.tcp_available_congestion_control` has the names",
            Errno::PERM => "; `sysctl net.ipv4.tcp_allowed_congestion_control` has those without privileges",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot set the {what} of a TCP socket: {error}{remedy}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, ListenOptions, Source, socket};
    use std::os::fd::BorrowedFd;

    fn options() -> TcpOptions {
        TcpOptions {
            send_buffer: Some(50_000),
            receive_buffer: Some(40_000),
            user_timeout: Some(Duration::from_millis(7_500)),
            dscp: Some(46),
            congestion: Some("reno".into()),
            keepalive: Some(Keepalive { idle: Duration::from_secs(11), interval: Duration::from_secs(3), probes: 4 }),
        }
    }

    /// The options that the kernel has for a socket. It doubles the sizes of buffers.
    fn found(fd: BorrowedFd<'_>, is_ipv6: bool) -> TcpOptions {
        let class = if is_ipv6 { sockopt::ipv6_tclass(fd).unwrap() } else { sockopt::ip_tos(fd).unwrap().into() };
        assert!(sockopt::socket_keepalive(fd).unwrap() && sockopt::tcp_nodelay(fd).unwrap());
        TcpOptions {
            send_buffer: Some(sockopt::socket_send_buffer_size(fd).unwrap() / 2),
            receive_buffer: Some(sockopt::socket_recv_buffer_size(fd).unwrap() / 2),
            user_timeout: Some(Duration::from_millis(sockopt::tcp_user_timeout(fd).unwrap().into())),
            dscp: Some(u8::try_from(class >> 2).unwrap()),
            congestion: Some(sockopt::tcp_congestion(fd).unwrap()),
            keepalive: Some(Keepalive {
                idle: sockopt::tcp_keepidle(fd).unwrap(),
                interval: sockopt::tcp_keepintvl(fd).unwrap(),
                probes: sockopt::tcp_keepcnt(fd).unwrap(),
            }),
        }
    }

    #[test]
    fn sockets_of_both_ends_have_the_options() {
        for (at, is_ipv6) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let listen = ListenOptions { tcp: options(), ..ListenOptions::default() };
            let Ok(listening) = socket::listen(&at.parse().unwrap(), &listen) else {
                assert!(is_ipv6, "only a machine without IPv6 has no [::1]");
                continue;
            };
            let source = Source { tcp: options(), ..Source::default() };
            let client = socket::stream(&listening.address, &source).unwrap();
            socket::connect(&client, &listening.address).unwrap();
            while !socket::has_waiting(&listening.fd) {
                std::thread::yield_now();
            }
            let accepted = socket::accept(&listening.fd).unwrap();
            for fd in [client.as_fd(), accepted.0.as_fd()] {
                assert_eq!(found(fd, is_ipv6), options(), "{at}");
            }
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_named() {
        let target: Address = "127.0.0.1:1".parse().unwrap();
        let refused =
            |tcp: TcpOptions| socket::stream(&target, &Source { tcp, ..Source::default() }).unwrap_err().to_string();
        let error = refused(TcpOptions { congestion: Some("no-such".into()), ..TcpOptions::default() });
        assert!(error.contains("congestion control \"no-such\"") && error.contains("sysctl"), "{error}");
        let error = refused(TcpOptions { dscp: Some(64), ..TcpOptions::default() });
        assert!(error.contains("DSCP 64"), "{error}");
    }
}
