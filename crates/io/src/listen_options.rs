use crate::TcpOptions;

/// How to listen.
///
/// ```
/// # mod tautline { pub use tautline_io::{Address, DriverConfig, ListenOptions}; }
/// use tautline::{Address, DriverConfig, ListenOptions};
///
/// let mut options = ListenOptions::default();
/// options.backlog = 128;
/// let (_, address) = DriverConfig::default().open()?.listen(&"127.0.0.1:0".parse()?, &options)?;
/// assert!(matches!(address, Address::Tcp(at) if at.port() != 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Length of the queue of connections that are not accepted yet (`listen(2)`).
    pub backlog: i32,
    /// `SO_REUSEPORT`: several drivers listen at one address and the kernel spreads connections over them.
    pub reuse_port: bool,
    /// Replace a Unix socket's file that nobody listens on any more.
    pub replace_stale: bool,
    /// The mode of a Unix socket's file, before anybody can connect. By default the process' mask decides.
    pub unix_mode: Option<u32>,
    /// Options of the socket, which accepted connections inherit.
    pub tcp: TcpOptions,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { backlog: 4096, reuse_port: false, replace_stale: true, unix_mode: None, tcp: TcpOptions::default() }
    }
}
