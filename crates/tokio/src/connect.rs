use crate::addresses::Addresses;
use crate::error::Error;
use crate::session::Session;
use crate::socket::WebSocket;
use crate::timer::now;
use crate::tls::Client;
use crate::{context, resolve};
use std::sync::Arc;
use tautline_engine::connection::Connection;
use tautline_engine::{Cause, Config, ConnectError, Deadline, Deadlines, Target};
use tautline_io::Address;
#[cfg(feature = "tls")]
use tautline_tls::ClientConfig;
use tautline_tls::plain;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Connects to a `ws://` or `wss://` URI. It trusts the platform's certificate authorities.
///
/// # Errors
/// [`Error::Connect`] if the URI is invalid, the host cannot be reached, or the opening handshake fails.
pub async fn connect(uri: &str) -> Result<WebSocket<TcpStream>, Error> {
    let target = Target::new(uri)?;
    #[cfg(feature = "tls")]
    if target.is_secure() {
        return Connector::new(&ClientConfig::default())?.connect(target).await;
    }
    Connector::plain().connect(target).await
}

/// Opens the client's end of connections. Clones share the TLS configuration and the sessions to resume.
///
/// ```no_run
/// use tautline_tokio::{ClientConfig, Connector, Roots, Target};
///
/// # #[cfg(feature = "tls")]
/// # async fn dial() -> Result<(), Box<dyn std::error::Error>> {
/// let connector = Connector::new(&ClientConfig::default())?;
/// let mut target = Target::new("wss://example.com/feed")?;
/// target.proxy = Some("http://proxy.example:3128".parse()?);
/// let mut socket = connector.connect(target).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connector {
    tls: Option<Client>,
    config: Arc<Config>,
    addresses: Arc<Addresses>,
}

impl Connector {
    /// A connector for `wss://` and `ws://`.
    ///
    /// # Errors
    /// [`Error::Tls`] if a root or a certificate cannot be used.
    #[cfg(feature = "tls")]
    pub fn new(tls: &ClientConfig) -> Result<Self, Error> {
        Ok(Self { tls: Some(Client::new(tls)?), config: Arc::default(), addresses: Arc::default() })
    }

    /// A connector for `ws://` alone.
    #[must_use]
    pub fn plain() -> Self {
        Self { tls: None, config: Arc::default(), addresses: Arc::default() }
    }

    /// Sets limits and deadlines.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = Arc::new(config);
        self
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.config.deadlines
    }

    /// Connects to `target`, or to its proxy, and opens a WebSocket.
    ///
    /// The addresses of the host are tried in turn, and a further one after 250 ms at the latest. Addresses that failed
    /// recently come last, also if they accepted a connection and then said nothing.
    /// [`Target::reconnect`] has no effect here: see [`connections`](Self::connections).
    ///
    /// # Errors
    /// [`Error::Connect`] if the host cannot be reached within [`Deadlines::connect`](crate::Deadlines), or the opening
    /// handshake fails.
    pub async fn connect(&self, target: impl Into<Arc<Target>>) -> Result<WebSocket<TcpStream>, Error> {
        let target = target.into();
        target.check()?;
        self.check_scheme(&target)?;
        let (host, port) = match &target.proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (target.host(), target.port()),
        };
        let socket = async {
            // Addresses that the program has found take the place of the host.
            let literal = || target.literal().filter(|_| target.addresses.is_empty()).map(Address::Tcp);
            match target.address.clone().or_else(literal) {
                None => resolve::connect(host, port, &target, &self.addresses).await,
                Some(address @ Address::Tcp(tcp)) => resolve::connect_to(tcp, target.source.as_ref())
                    .await
                    .map(|stream| (tcp, stream))
                    .map_err(|error| ConnectError::Io { address, error: error.into(), others: Arc::default() }),
                Some(_) => Err(ConnectError::Target("connect to a Unix socket, and pass it to connect_over".into())),
            }
        };
        let late = |_| ConnectError::Ended(Cause::Timeout(Deadline::Connect));
        let (address, stream) = tokio::time::timeout(self.config.deadlines.connect, socket).await.map_err(late)??;
        stream.set_nodelay(true)?;
        let opened = self.connect_over(target, stream).await;
        match &opened {
            Ok(_) => self.addresses.opened(&address),
            Err(Error::Connect(error)) => self.addresses.failed(address, error),
            Err(_) => {}
        }
        opened
    }

    /// Opens a WebSocket to `target` over `io`, which leads to it or to its proxy.
    ///
    /// # Errors
    /// [`Error::Connect`] if the opening handshake fails.
    pub async fn connect_over<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        target: impl Into<Arc<Target>>,
        io: T,
    ) -> Result<WebSocket<T>, Error> {
        let target = target.into();
        let session = self.session(&target)?;
        let open = |buffers: &mut _| Connection::client(session, target, self.config.clone(), buffers, now());
        let connection = context::with(open)??;
        let mut socket = WebSocket::new(io, connection, self.config.clone())?;
        socket.opening().await?;
        Ok(socket)
    }

    /// A session of TLS for `target`, if its scheme wants one. It may use up a ticket.
    pub(crate) fn session(&self, target: &Target) -> Result<Session, ConnectError> {
        self.check_scheme(target)?;
        match &self.tls {
            Some(tls) if target.is_secure() => {
                tls.connect(&target.tls_name()).map_err(|error| ConnectError::Ended(Cause::Tls(error)))
            }
            _ => Ok(Box::new(plain::Session)),
        }
    }

    fn check_scheme(&self, target: &Target) -> Result<(), ConnectError> {
        if target.is_secure() && self.tls.is_none() {
            let what = if cfg!(feature = "tls") {
                "this connector is for ws:// alone: make it by Connector::new"
            } else {
                "this build has no TLS: enable the feature `tls` of tautline-tokio"
            };
            return Err(ConnectError::Target(what.into()));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}
