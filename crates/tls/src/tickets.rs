use crate::Error;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A server's session tickets, and the keys that seal them.
///
/// Tickets let clients resume sessions of TLS 1.3 (RFC 8446, section 2.2) and TLS 1.2 (RFC 5077). A ticket holds the
/// session, sealed with a key that only servers have, so that a server stores nothing per client.
///
/// A server has three keys at a time. The current one seals and opens tickets; the previous and the next one only open
/// them. After each period the server erases the previous key, and the others move up. A ticket is therefore valid for
/// at least one period and at most two.
///
/// A server that requests client certificates ([`ClientAuth`](crate::ClientAuth)) issues no tickets, whatever
/// this value is. A resumed session does not present the certificate again, so a revoked certificate would live on in
/// tickets.
///
/// ```
/// # mod tautline { pub use tautline_tls::{ServerConfig, TicketSecret, Tickets}; }
/// use tautline::{ServerConfig, TicketSecret, Tickets};
///
/// // Every host of the fleet reads these 32 random bytes from the same place.
/// let secret = TicketSecret::new(&[7; 32])?;
/// let config = ServerConfig::default().with_tickets(Tickets::fleet(secret));
/// assert!(config.tickets != Tickets::Off && config.tickets != Tickets::default());
/// # Ok::<(), tautline_tls::Error>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Tickets {
    /// No session is resumed.
    Off,
    /// Random keys that only this engine has.
    Own {
        /// The period: from one second to [`LONGEST`](Self::LONGEST).
        rotate: Duration,
    },
    /// Keys that every host of a fleet derives from one secret and the time of day.
    ///
    /// Each host resumes the sessions of all others. Their clocks must differ by less than one epoch.
    Fleet {
        /// The source of the secret.
        source: Arc<dyn TicketKeySource>,
        /// The period: whole seconds, up to [`LONGEST`](Self::LONGEST), the same on every host.
        epoch: Duration,
    },
}

impl Tickets {
    /// The longest period, and the default: 12 hours.
    ///
    /// A thief of a key can resume the sessions whose tickets it sealed and, with TLS 1.2, decrypt them. Keys must
    /// therefore be replaced often.
    pub const LONGEST: Duration = Duration::from_hours(12);

    /// Makes a fleet's tickets with a secret that does not change.
    #[must_use]
    pub fn fleet(secret: TicketSecret) -> Self {
        Self::Fleet { source: Arc::new(secret), epoch: Self::LONGEST }
    }
}

impl Default for Tickets {
    fn default() -> Self {
        Self::Own { rotate: Self::LONGEST }
    }
}

/// Equal if a reload may keep the keys: same period, same source object.
impl PartialEq for Tickets {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Off, Self::Off) => true,
            (Self::Own { rotate }, Self::Own { rotate: other }) => rotate == other,
            (Self::Fleet { source, epoch }, Self::Fleet { source: other, epoch: other_epoch }) => {
                Arc::ptr_eq(source, other) && epoch == other_epoch
            }
            _ => false,
        }
    }
}

/// A source of a fleet's secrets, such as a file or a key management service.
///
/// ```
/// # mod tautline { pub use tautline_tls::{TicketKeySource, TicketSecret}; pub mod layers { pub use tautline_tls as tls; } }
/// use std::time::Duration;
/// use tautline::layers::tls::Error;
/// use tautline::{TicketKeySource, TicketSecret};
///
/// /// Reads the secrets from the environment, every minute.
/// struct Environment;
///
/// impl TicketKeySource for Environment {
///     fn secrets(&self) -> Result<Vec<TicketSecret>, Error> {
///         let text = std::env::var("TICKET_SECRETS").map_err(|error| Error::Config(error.to_string()))?;
///         TicketSecret::parse(text.as_bytes())
///     }
///
///     fn interval(&self) -> Duration {
///         Duration::from_secs(60)
///     }
/// }
/// ```
pub trait TicketKeySource: Send + Sync {
    /// Returns the current secrets, from one to [`TicketSecret::MOST`].
    ///
    /// Keys of the first secret seal tickets; keys of all secrets open them. To change the secret, append the new one
    /// on every host, then move it to the front, and remove the old one later.
    ///
    /// The engine calls this when it is made, and then every [`interval`](Self::interval) on a thread of its own. The
    /// call may block.
    ///
    /// # Errors
    /// [`Error::Config`] if there are no secrets. If the first call fails, the engine is not made. The error of a later
    /// call is logged, and the old secrets stay in use.
    fn secrets(&self) -> Result<Vec<TicketSecret>, Error>;

    /// Returns the time between two calls of [`secrets`](Self::secrets).
    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }
}

/// The secret that a fleet's ticket keys are derived from; erased on drop.
///
/// Keep it as safe as the private key, and change it regularly. An attacker who has it can resume every session of the
/// fleet, and impersonate the fleet to clients that hold tickets. With TLS 1.2, the attacker can also decrypt
/// connections whose tickets were sealed by its keys.
///
/// ```
/// # mod tautline { pub use tautline_tls::TicketSecret; }
/// use tautline::TicketSecret;
///
/// // The lines of a file: the first secret seals.
/// let secrets = TicketSecret::parse(b"# from `openssl rand -hex 32`\n00112233445566778899aabbccddeeff\n")?;
/// assert_eq!(secrets.len(), 1);
/// assert!(TicketSecret::new(b"too short").is_err());
/// # Ok::<(), tautline_tls::Error>(())
/// ```
#[derive(Clone)]
pub struct TicketSecret(Zeroizing<Vec<u8>>);

impl TicketSecret {
    /// The shortest secret, in bytes.
    pub const SHORTEST: usize = 32;

    /// The most secrets that one source may return.
    pub const MOST: usize = 4;

    /// Makes a secret of random bytes: 32 bytes of `/dev/urandom`, say, not a passphrase.
    ///
    /// # Errors
    /// [`Error::Config`] if there are fewer than [`SHORTEST`](Self::SHORTEST).
    pub fn new(secret: &[u8]) -> Result<Self, Error> {
        if secret.len() < Self::SHORTEST {
            let (len, least) = (secret.len(), Self::SHORTEST);
            return Err(Error::Config(format!(
                "ticket secret: {len} bytes are too few, it needs at least {least}; `openssl rand -hex 32` makes one"
            )));
        }
        Ok(Self(Zeroizing::new(secret.to_vec())))
    }

    /// Reads secrets from text, one per line.
    ///
    /// The characters of a line are the secret, without spaces around them. Empty lines and lines that begin with `#`
    /// are skipped.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no secret, if there are too many, if one is too short, or if one has other
    /// characters than printable ASCII.
    pub fn parse(text: &[u8]) -> Result<Vec<Self>, Error> {
        let mut secrets = Vec::new();
        for line in text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if !line.iter().all(u8::is_ascii_graphic) {
                return Err(Error::Config(
                    "ticket secrets: expected one secret per line, in hexadecimal or Base64, as `openssl rand -hex 32` makes it"
                        .to_owned(),
                ));
            }
            secrets.push(Self::new(line)?);
        }
        match secrets.len() {
            0 => Err(Error::Config("ticket secrets: none found; `openssl rand -hex 32` makes one".to_owned())),
            count if count > Self::MOST => {
                Err(Error::Config(format!("ticket secrets: {count} are too many, at most {} are kept", Self::MOST)))
            }
            _ => Ok(secrets),
        }
    }

    /// The bytes of the secret.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret(..)")
    }
}

/// A source whose secret never changes.
impl TicketKeySource for TicketSecret {
    fn secrets(&self) -> Result<Vec<TicketSecret>, Error> {
        Ok(vec![self.clone()])
    }

    fn interval(&self) -> Duration {
        Duration::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &[u8]) -> String {
        match TicketSecret::parse(text) {
            Err(Error::Config(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parses_one_secret_per_line() {
        let (a, b) = ("a".repeat(32), "b".repeat(64));
        let text = format!("# first\r\n\n  {a}\r\n{b}");
        let secrets = TicketSecret::parse(text.as_bytes()).unwrap();
        assert_eq!(secrets.iter().map(TicketSecret::bytes).collect::<Vec<_>>(), [a.as_bytes(), b.as_bytes()]);
        assert_eq!(format!("{:?}", secrets[0]), "TicketSecret(..)");
    }

    #[test]
    fn rejects_text_without_usable_secrets() {
        assert!(refused(b"").contains("none found"));
        assert!(refused(b"# only this\n").contains("none found"));
        assert!(refused(&[b'x'; 31]).contains("31 bytes are too few"));
        assert!(refused(&[0; 48]).contains("expected one secret per line"));
        assert!(refused(format!("{0}\n{0}\n{0}\n{0}\n{0}\n", "c".repeat(32)).as_bytes()).contains("5 are too many"));
    }

    #[test]
    fn tickets_are_equal_if_period_and_source_are_the_same() {
        let fleet = Tickets::fleet(TicketSecret::new(&[7; 32]).unwrap());
        let same = fleet.clone();
        assert!(fleet == same);
        assert!(fleet != Tickets::fleet(TicketSecret::new(&[7; 32]).unwrap()));
        assert!(fleet != Tickets::default() && Tickets::default() == Tickets::default());
        assert!(Tickets::default() != Tickets::Own { rotate: Duration::from_secs(1) });
    }
}
