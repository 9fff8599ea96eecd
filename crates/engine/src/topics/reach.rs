/// The hosts that a published message goes to.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Conn, Outgoing, Reach, Withheld}; }
/// use tautline::{Conn, Outgoing, Reach, Withheld};
///
/// fn publish(conn: &mut Conn<'_, ()>, news: &str) {
///     if let Reach::ThisHost(Withheld::Away | Withheld::Full) = conn.publish("news", Outgoing::text(news)) {
///         conn.text("other hosts miss this");
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Every host with subscribers: the broker takes it.
    AllHosts,
    /// This host only.
    ThisHost(Withheld),
}

/// The reason why a message stays on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Withheld {
    /// There is no broker, or the message is not for a topic.
    #[default]
    NoBroker,
    /// The broker is away. It will be connected again.
    Away,
    /// Too many messages wait for the broker.
    Full,
}
