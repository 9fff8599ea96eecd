use crate::context;
use crate::counters::{Candidate, Counted};
use crate::error::Error;
use crate::session::Session;
use crate::socket::{Happened, WebSocket};
use crate::timer::now;
use crate::tls::Server;
use http::HeaderMap;
use std::sync::Arc;
#[cfg(feature = "tls")]
use std::{fs, io, path::Path};
use tautline_engine::connection::Connection;
use tautline_engine::{Config, Via};
use tautline_io::Address;
use tautline_tls::plain;
#[cfg(feature = "tls")]
use tautline_tls::{Certificate, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens the server's end of connections, with TLS or without. Clones share the TLS configuration.
///
/// ```no_run
/// use tautline_tokio::Acceptor;
///
/// # #[cfg(feature = "tls")]
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let acceptor = Acceptor::from_files("cert.pem", "key.pem")?;
/// let listener = tokio::net::TcpListener::bind("0.0.0.0:8443").await?;
/// loop {
///     let (stream, _) = listener.accept().await?;
///     stream.set_nodelay(true)?;
///     let acceptor = acceptor.clone();
///     tokio::spawn(async move {
///         let mut socket = acceptor.accept(stream).await?;
///         while let Some(mut message) = socket.recv().await? {
///             message.echo()?;
///         }
///         Ok::<(), tautline_tokio::Error>(())
///     });
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Acceptor {
    tls: Option<Arc<Server>>,
    config: Arc<Config>,
    counted: Option<Counted>,
}

impl Acceptor {
    /// An acceptor with TLS.
    ///
    /// # Errors
    /// [`Error::Tls`] if a certificate, key or root cannot be used.
    #[cfg(feature = "tls")]
    pub fn new(tls: &ServerConfig) -> Result<Self, Error> {
        Ok(Self { tls: Some(Arc::new(Server::new(tls)?)), config: Arc::default(), counted: None })
    }

    /// An acceptor with TLS, and the certificate in two files in PEM: the chain, end entity first, and its key.
    ///
    /// It reads the files at once, and so blocks for a moment.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::Tls`] if the certificate or the key cannot be used. Both name the file.
    #[cfg(feature = "tls")]
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, Error> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        let certificate = Certificate::new(content(chain)?, content(key)?).with_name(chain.display().to_string());
        Self::new(&ServerConfig::new([certificate]))
    }

    /// An acceptor without TLS.
    #[must_use]
    pub fn plain() -> Self {
        Self { tls: None, config: Arc::default(), counted: None }
    }

    /// Sets limits, deadlines, and the terms of the upgrade: subprotocols, compression, origins.
    ///
    /// The limits on the number of connections, and [`Config::offload`], are those of a shard and have no effect here.
    #[must_use]
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = Arc::new(config);
        self
    }

    /// Counts all streams that this acceptor opens, and those that it refuses.
    #[must_use]
    pub fn with_counted(mut self, counted: &Counted) -> Self {
        self.counted = Some(counted.clone());
        self
    }

    /// Replaces the certificates for connections that are accepted from now on, also by clones.
    ///
    /// # Errors
    /// [`Error::Tls`] if the new configuration cannot be used, or if there is no TLS. The old one then stays in use.
    #[cfg(feature = "tls")]
    pub fn reload(&self, tls: &ServerConfig) -> Result<(), Error> {
        let none = tautline_tls::Error::ApiMisuse("an acceptor without TLS has no certificates to reload");
        self.tls.as_ref().ok_or(none)?.reload(tls)
    }

    /// Opens a WebSocket over `io`, at any path.
    ///
    /// # Errors
    /// [`Error::Connect`] if the handshake fails, or the client asks for no WebSocket.
    pub async fn accept<T: AsyncRead + AsyncWrite + Unpin>(&self, io: T) -> Result<WebSocket<T>, Error> {
        self.ask(io).await?.upgrade(HeaderMap::new()).await
    }

    /// Waits for a client's request over `io`, to decide about it.
    ///
    /// # Errors
    /// [`Error::Connect`] if the handshake fails before there is a request.
    pub async fn ask<T: AsyncRead + AsyncWrite + Unpin>(&self, io: T) -> Result<Asking<T>, Error> {
        self.begin(io, Connection::server(self.session()?, self.config.clone(), now())).await
    }

    /// As [`accept`](Self::accept), over a connection with this peer, of which [`Config::front`] tells what is believed: a header
    /// of the PROXY protocol before TLS, or the client that a request names. [`WebSocket::peer`] is the client then.
    ///
    /// ```no_run
    /// use tautline_tokio::{Acceptor, Config, Prefixes};
    ///
    /// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut config = Config::default();
    /// config.front.proxy_protocol_from = Prefixes::list(&["10.0.0.0/8"])?;
    /// let acceptor = Acceptor::plain().with_config(config);
    /// let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
    /// let (stream, peer) = listener.accept().await?;
    /// let socket = acceptor.accept_from(stream, peer).await?;
    /// println!("{:?} by {:?}", socket.peer(), socket.via().map(|via| &via.direct));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`accept`](Self::accept), and if the header is wrong, or the peer is none of those who send one.
    pub async fn accept_from<T>(&self, io: T, peer: impl Into<Address>) -> Result<WebSocket<T>, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        self.ask_from(io, peer).await?.upgrade(HeaderMap::new()).await
    }

    /// As [`ask`](Self::ask), over a connection with this [peer](Self::accept_from).
    ///
    /// # Errors
    /// Those of [`accept_from`](Self::accept_from), before there is a request.
    pub async fn ask_from<T>(&self, io: T, peer: impl Into<Address>) -> Result<Asking<T>, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        self.begin(io, Connection::server_from(self.session()?, peer.into(), self.config.clone(), now())).await
    }

    fn session(&self) -> Result<Session, Error> {
        Ok(match &self.tls {
            Some(tls) => tls.accept()?,
            None => Box::new(plain::Session),
        })
    }

    async fn begin<T>(&self, io: T, connection: Connection<Session>) -> Result<Asking<T>, Error>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let candidate = Candidate::new(self.counted.as_ref());
        let mut socket = WebSocket::new(io, connection, self.config.clone())?;
        socket.opening().await?;
        Ok(Asking { socket, candidate })
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

/// The content of a file.
#[cfg(feature = "tls")]
fn content(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))
}

/// A client's request that waits for an answer.
///
/// ```
/// use tautline_tokio::{Acceptor, Error, WebSocket};
/// use tokio::net::TcpStream;
///
/// async fn admit(acceptor: &Acceptor, stream: TcpStream) -> Result<Option<WebSocket<TcpStream>>, Error> {
///     let asking = acceptor.ask(stream).await?;
///     if asking.request().uri().path() == "/feed" {
///         return Ok(Some(asking.upgrade(Default::default()).await?));
///     }
///     asking.respond(&http::Response::builder().status(404).body("not here\n").unwrap()).await?;
///     Ok(None)
/// }
/// ```
#[derive(Debug)]
pub struct Asking<T> {
    socket: WebSocket<T>,
    candidate: Candidate,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Asking<T> {
    /// The request.
    #[expect(clippy::expect_used, reason = "only `upgrade` and `respond` take it, with `self`")]
    #[must_use]
    pub fn request(&self) -> &http::Request<()> {
        self.socket.connection_ref().request().expect("a request waits")
    }

    /// The client, if the connection was accepted [from a known peer](Acceptor::ask_from).
    #[must_use]
    pub fn peer(&self) -> Option<&Address> {
        self.socket.peer()
    }

    /// The client's way through proxies, if it is not the peer of the socket.
    #[must_use]
    pub fn via(&self) -> Option<&Via> {
        self.socket.via()
    }

    /// The request's body, of at most [`Limits::max_body`](tautline_engine::Limits) bytes.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.socket.connection_ref().body()
    }

    /// Accepts the WebSocket, with further headers in the response.
    ///
    /// # Errors
    /// [`Error::Connect`] if the request is no valid upgrade, or the configuration forbids it. The client gets a
    /// response that says why.
    pub async fn upgrade(mut self, headers: HeaderMap) -> Result<WebSocket<T>, Error> {
        context::with(|buffers| self.socket.connection().upgrade(headers, buffers, now()))??;
        self.socket.opening().await?;
        // The response leaves even if the first message is long in coming.
        self.socket.flush().await?;
        if let Some(counted) = self.candidate.open() {
            self.socket.count_in(&counted);
        }
        Ok(self.socket)
    }

    /// Answers as plain HTTP. Returns the client's next request on this connection, if there is one.
    ///
    /// # Errors
    /// [`Error::Connect`] if the connection fails.
    pub async fn respond<B: AsRef<[u8]>>(mut self, response: &http::Response<B>) -> Result<Option<Self>, Error> {
        context::with(|buffers| self.socket.connection().respond(response, buffers, now()))??;
        match self.socket.opening().await {
            Ok(Happened::Request) => Ok(Some(self)),
            Ok(_) | Err(Error::Connect(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tautline_dev_cert::{Authority, Leaf};
    use tautline_tls::Tickets;

    fn acceptor(tickets: Tickets) -> Acceptor {
        let certificate = Authority::new("test").unwrap().issue(&Leaf::new(&["localhost"])).unwrap();
        let mut tls = ServerConfig::new([certificate]);
        tls.tickets = tickets;
        Acceptor::new(&tls).unwrap()
    }

    async fn accept_one_that_leaves(acceptor: &Acceptor) {
        let (near, far) = tokio::io::duplex(1024);
        drop(near);
        assert!(acceptor.accept(far).await.is_err());
    }

    fn renews(acceptor: &Acceptor) -> bool {
        acceptor.tls.as_ref().unwrap().is_renewing()
    }

    #[test]
    fn ticket_keys_are_renewed_by_a_task_of_the_runtime_that_accepts() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let own = acceptor(Tickets::Own { rotate: Duration::from_secs(3600) });
        assert!(!renews(&own), "an acceptor can be made outside of a runtime");
        for _ in 0..2 {
            let runtime = runtime();
            runtime.block_on(async {
                accept_one_that_leaves(&own).await;
                assert!(renews(&own));
            });
            drop(runtime);
            assert!(!renews(&own), "the task ends with its runtime");
        }
        runtime().block_on(async {
            let off = acceptor(Tickets::Off);
            accept_one_that_leaves(&off).await;
            assert!(!renews(&off));
            accept_one_that_leaves(&own).await;
            let metrics = tokio::runtime::Handle::current().metrics();
            assert_eq!(metrics.num_alive_tasks(), 1);
            drop(own);
            while metrics.num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
        });
    }
}
