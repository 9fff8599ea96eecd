use crate::Error;
use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Whether and by which keys a server lets clients resume their sessions: tickets of TLS 1.3 (RFC 8446, section 2.2) and of
/// TLS 1.2 (RFC 5077).
///
/// A ticket holds the session, sealed with a key that only servers have; nothing is stored per client. At every time there
/// are three keys: the current one, which seals, the previous and the next, which are only accepted. After each period they
/// move up, and the previous one is erased. A ticket can thus be used for one period at least and two at most.
///
/// Where client certificates are asked for ([`ClientAuth`](crate::ClientAuth)) there are no tickets, whatever is said here: a
/// resumed session does not show the certificate again, so that a revoked one would live on in tickets.
#[derive(Clone)]
pub enum Tickets {
    /// No session is resumed.
    Off,
    /// Keys of this engine alone, made at random.
    Own {
        /// The period: from one second to [`LONGEST`](Self::LONGEST).
        rotate: Duration,
    },
    /// Keys that every host derives from the same secret and from the time of day, so that each resumes what any other
    /// issued. Their clocks may differ by most of an epoch.
    Fleet {
        /// Where the secret comes from.
        source: Arc<dyn TicketKeySource>,
        /// The period: whole seconds, up to [`LONGEST`](Self::LONGEST), the same on every host.
        epoch: Duration,
    },
}

impl Tickets {
    /// The longest period, and the default: 12 hours. Whoever steals a key can resume, and for TLS 1.2 read, what was sealed
    /// with it, so that keys must not grow old.
    pub const LONGEST: Duration = Duration::from_hours(12);

    /// Keys derived from a secret that does not change.
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

/// Equal where a reload may keep the keys: the same period, and the same source object.
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

/// Where a fleet's secrets come from: a file, a key management service.
pub trait TicketKeySource: Send + Sync {
    /// The secrets of now, from one to [`TicketSecret::MOST`]. Tickets are sealed by keys of the first; those of all are
    /// accepted, so that a new secret can be spread before it is used, and the old one be taken away after that.
    ///
    /// Asked when the engine is made, then every [`interval`](Self::interval) on a thread of its own, so it may block.
    ///
    /// # Errors
    /// When the engine is made: [`Error::Config`], and there is no engine. Later: it is logged, the secrets of before stay.
    fn secrets(&self) -> Result<Vec<TicketSecret>, Error>;

    /// How often to ask.
    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }
}

/// What a fleet's ticket keys are derived from; erased when it is dropped.
///
/// Whoever has it can resume every session of the fleet, read the TLS 1.2 connections whose tickets were sealed by its keys,
/// and pass for the fleet to clients that hold tickets: keep it as safe as the private key, and change it now and then.
#[derive(Clone)]
pub struct TicketSecret(Zeroizing<Vec<u8>>);

impl TicketSecret {
    /// The shortest secret, in bytes.
    pub const SHORTEST: usize = 32;

    /// Most secrets of one source.
    pub const MOST: usize = 4;

    /// A secret of these bytes, which must be random: 32 bytes of `/dev/urandom`, not a passphrase.
    ///
    /// # Errors
    /// [`Error::Config`] where there are less than [`SHORTEST`](Self::SHORTEST).
    pub fn new(secret: &[u8]) -> Result<Self, Error> {
        if secret.len() < Self::SHORTEST {
            let (len, least) = (secret.len(), Self::SHORTEST);
            return Err(Error::Config(format!(
                "ticket secret: {len} bytes are too few, it needs at least {least}; `openssl rand -hex 32` makes one"
            )));
        }
        Ok(Self(Zeroizing::new(secret.to_vec())))
    }

    /// Reads secrets from text: one a line, its characters taken as they are but for spaces around it; empty lines and lines
    /// that begin with `#` do not count.
    ///
    /// # Errors
    /// [`Error::Config`] where there is none, too many, one that is too short, or anything but printable ASCII.
    pub fn parse(text: &[u8]) -> Result<Vec<Self>, Error> {
        let mut secrets = Vec::new();
        for line in text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            if !line.iter().all(u8::is_ascii_graphic) {
                return Err(Error::Config(
                    "ticket secrets: expected one secret a line, in hexadecimal or Base64, as `openssl rand -hex 32` makes it"
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

    /// Its bytes.
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

/// A source that never changes.
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
    fn a_file_holds_one_secret_a_line() {
        let (a, b) = ("a".repeat(32), "b".repeat(64));
        let text = format!("# first\r\n\n  {a}\r\n{b}");
        let secrets = TicketSecret::parse(text.as_bytes()).unwrap();
        assert_eq!(secrets.iter().map(TicketSecret::bytes).collect::<Vec<_>>(), [a.as_bytes(), b.as_bytes()]);
        assert_eq!(format!("{:?}", secrets[0]), "TicketSecret(..)");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        assert!(refused(b"").contains("none found"));
        assert!(refused(b"# only this\n").contains("none found"));
        assert!(refused(&[b'x'; 31]).contains("31 bytes are too few"));
        assert!(refused(&[0; 48]).contains("expected one secret a line"));
        assert!(refused(format!("{0}\n{0}\n{0}\n{0}\n{0}\n", "c".repeat(32)).as_bytes()).contains("5 are too many"));
    }

    #[test]
    fn a_reload_keeps_the_keys_of_the_same_source() {
        let fleet = Tickets::fleet(TicketSecret::new(&[7; 32]).unwrap());
        let same = fleet.clone();
        assert!(fleet == same);
        assert!(fleet != Tickets::fleet(TicketSecret::new(&[7; 32]).unwrap()));
        assert!(fleet != Tickets::default() && Tickets::default() == Tickets::default());
        assert!(Tickets::default() != Tickets::Own { rotate: Duration::from_secs(1) });
    }
}
