//! Resolvers of the application's own.

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;
use tautline_conn::closed::ConnectError;

/// Most addresses that an attempt to connect takes from an answer.
pub(crate) const MOST_ADDRESSES: usize = 64;

/// Resolves names in the application's own way, for [`Target::resolver`](crate::Target::resolver).
///
/// ```
/// # mod tautline { pub use tautline_engine::{Lookup, Resolver, Target}; }
/// use std::net::SocketAddr;
/// use tautline::{Lookup, Resolver, Target};
///
/// /// Asks a service of the data centre, on a thread of its own.
/// #[derive(Debug)]
/// struct Service;
///
/// impl Resolver for Service {
///     fn resolve(&self, lookup: Lookup) {
///         std::thread::spawn(move || {
///             let found = ask(lookup.host()).map(|ip| SocketAddr::new(ip, lookup.port()));
///             lookup.answer(found.map(|address| vec![address]));
///         });
///     }
/// }
///
/// fn ask(host: &str) -> Result<std::net::IpAddr, String> {
///     Err(format!("{host} is not registered"))
/// }
///
/// let target = Target::new("wss://prices.internal/")?.with_resolver(Service);
/// # Ok::<(), tautline_engine::ConnectError>(())
/// ```
pub trait Resolver: Send + Sync + fmt::Debug {
    /// Begins to look a name up. It is called on the shard's thread and must not block. Any thread may answer, at once or later.
    fn resolve(&self, lookup: Lookup);
}

/// A question for a name's addresses.
///
/// The attempt to connect fails if no answer comes within [`Deadlines::connect`](crate::Deadlines). It fails at once if
/// this is dropped without an answer.
///
/// ```
/// # mod tautline { pub use tautline_engine::Lookup; }
/// use tautline::Lookup;
///
/// fn answer(lookup: Lookup) {
///     let address = ([10, 0, 0, 7], lookup.port()).into();
///     lookup.answer(Ok::<_, String>(vec![address]));
/// }
/// ```
pub struct Lookup {
    host: String,
    port: u16,
    until: Option<Instant>,
    /// Gets the answer, once.
    answer: Option<Box<Answer>>,
}

type Answer = dyn FnOnce(Result<Vec<SocketAddr>, ConnectError>) + Send;

impl Lookup {
    /// A lookup whose answer goes to `answer`, for tests of a resolver and for clients of one's own.
    pub fn new(
        host: &str,
        port: u16,
        until: Option<Instant>,
        answer: impl FnOnce(Result<Vec<SocketAddr>, ConnectError>) + Send + 'static,
    ) -> Self {
        Self { host: host.to_owned(), port, until, answer: Some(Box::new(answer)) }
    }

    /// The name.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port for the addresses.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The time after which an answer is of no use; `None` if there is no such time.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// Answers with addresses, the preferred first, or with the reason why there are none. At most 64 are tried.
    ///
    /// Families alternate, and each attempt begins 250 ms after the one before, as with the system's resolver. An answer after
    /// the deadline is ignored.
    pub fn answer(mut self, addresses: Result<Vec<SocketAddr>, impl fmt::Display>) {
        let host = std::mem::take(&mut self.host);
        let result = match addresses {
            Ok(found) if found.is_empty() => Err(ConnectError::Resolve(format!("{host} has no address"))),
            Ok(mut found) => {
                found.truncate(MOST_ADDRESSES);
                Ok(found)
            }
            Err(error) => Err(ConnectError::Resolve(format!("cannot resolve {host}: {error}"))),
        };
        self.give(result);
    }

    fn give(&mut self, result: Result<Vec<SocketAddr>, ConnectError>) {
        if let Some(answer) = self.answer.take() {
            answer(result);
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let error = format!("cannot resolve {}: the resolver dropped the lookup without an answer", self.host);
        self.give(Err(ConnectError::Resolve(error)));
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookup").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}
