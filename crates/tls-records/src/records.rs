//! TLS 1.3 after the handshake (RFC 8446, sections 4.6, 5 and 6).

mod kernel;

use crate::agreed::Agreed;
use crate::alert::{self, BAD_RECORD_MAC, CLOSE_NOTIFY, DECODE_ERROR, ILLEGAL_PARAMETER, INTERNAL_ERROR};
use crate::alert::{RECORD_OVERFLOW, UNEXPECTED_MESSAGE, USER_CANCELED};
use crate::chunks::Chunks;
use crate::keys::{Keys, OVERHEAD};
use crate::schedule::{Secret, Suite};
use crate::snapshot::{Role, Snapshot, Traffic};
use kernel::InKernel;
use std::collections::VecDeque;
use tautline_tls::record::{HEADER, MAX_PLAIN};
use tautline_tls::{Content, Error, Opened, Team};
use tautline_window::Buf;
use tautline_window::kernel::{Direction, NEW_KEYS, TrafficKeys, head};

/// Longest body of a protected record (section 5.2).
const MAX_BODY: usize = MAX_PLAIN + 256;

/// Records that one key protects before the next one takes over, a third of what AES-GCM allows (section 5.5). A peer whose
/// key has protected as many is asked for another one: the limit is that of who seals, but few libraries count.
///
/// Integrity has a limit too, of records that do not authenticate, which needs no counter: the first one is the last.
const REKEY_AFTER: u64 = 1 << 23;

/// Longest handshake message that is put together from several records; only a ticket is ever that long.
const MAX_MESSAGE: usize = 1 << 16;

/// Tickets that a client takes of a connection which was not resumed. What a library needs for it is worth a kilobyte and the
/// server's certificates, and servers send one or two, right after the handshake.
pub const TICKETS: u8 = 2;

/// Tickets that a client takes of a resumed connection, which used one up.
pub const TICKETS_RESUMED: u8 = 1;

/// Records after which a client waits for no more of them.
const TICKETS_WITHIN: u64 = 16;

/// Most records in a row that hold no application data.
const MAX_QUIET: u8 = 64;

/// Most user_canceled alerts.
const MAX_CANCELED: u8 = 4;

/// Content types.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Handshake types.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Where a client's tickets go.
pub trait Tickets: Send {
    /// Takes the body of a NewSessionTicket (section 4.6.1), without its header.
    ///
    /// # Errors
    /// What is wrong with it, in words for the peer's fault, behind the alert that says so.
    fn take(&mut self, body: &[u8]) -> Result<(), (u8, Error)>;
}

/// An established TLS 1.3 connection.
pub struct Records {
    rx: Keys,
    tx: Keys,
    agreed: Agreed,
    rare: Option<Box<Rare>>,
    suite: Suite,
    role: Role,
    quiet: u8,
    canceled: u8,
    /// New keys of ours are due before the next data, as the peer asked for them (section 4.6.3), or
    owes_update: bool,
    /// because that is how to ask for new ones of the peer's.
    asks_update: bool,
    sent_close: bool,
    received_close: bool,
    kernel: InKernel,
}

/// What most connections have no use for most of the time.
#[derive(Default)]
struct Rare {
    /// The beginning of a handshake message that is split over records.
    partial: Vec<u8>,
    /// Where a client's tickets go, for as long as they are wanted.
    tickets: Option<Box<dyn Tickets>>,
    /// How many it took.
    taken: u8,
    /// Keys that the kernel is still to get.
    for_kernel: VecDeque<TrafficKeys>,
}

impl Rare {
    fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.tickets.is_none() && self.for_kernel.is_empty()
    }
}

/// Why a record is refused: the alert that says so, and our words.
struct Refusal(u8, Error);

impl Refusal {
    fn new(alert: u8, why: &str) -> Self {
        Self(alert, Error::Peer(why.to_owned()))
    }
}

/// A handshake message, header included, and what lies behind it.
type Cut<'m> = (&'m [u8], &'m [u8]);

/// What an opened record means.
enum Meaning {
    /// Application data, so many bytes of it.
    Data(usize),
    Control,
    Closed,
}

impl Records {
    /// Takes over behind a handshake: the keys for what is received and for what is sent, what was agreed on, and where a
    /// client's tickets are to go.
    #[must_use]
    pub fn new(
        role: Role,
        suite: Suite,
        (rx, tx): (Keys, Keys),
        agreed: Agreed,
        tickets: Option<Box<dyn Tickets>>,
    ) -> Self {
        Self {
            rx,
            tx,
            agreed,
            rare: tickets.map(|tickets| Box::new(Rare { tickets: Some(tickets), ..Rare::default() })),
            suite,
            role,
            quiet: 0,
            canceled: 0,
            owes_update: false,
            asks_update: false,
            sent_close: false,
            received_close: false,
            kernel: InKernel::default(),
        }
    }

    pub(crate) fn import(snapshot: &Snapshot) -> Result<Self, Error> {
        let suite = snapshot.suite;
        let keys = |traffic: &Traffic| match Secret::new(&traffic.secret) {
            Some(secret) if traffic.secret.len() == suite.hash_len() => Keys::derive(suite, secret, traffic.sequence),
            _ => Err(Error::ApiMisuse("a traffic secret is not as long as its suite's hash")),
        };
        if snapshot.quiet > MAX_QUIET || snapshot.canceled > MAX_CANCELED || snapshot.partial.len() > 4 + MAX_MESSAGE {
            return Err(Error::ApiMisuse("a snapshot goes past the limits of a session"));
        }
        let partial = snapshot.partial.clone();
        Ok(Self {
            rx: keys(&snapshot.rx)?,
            tx: keys(&snapshot.tx)?,
            agreed: Agreed::new(suite as u16, snapshot.group, snapshot.facts.clone()),
            rare: (!partial.is_empty()).then(|| Box::new(Rare { partial, ..Rare::default() })),
            suite,
            role: snapshot.role,
            quiet: snapshot.quiet,
            canceled: snapshot.canceled,
            owes_update: snapshot.owes_update || snapshot.asks_update,
            asks_update: snapshot.asks_update,
            sent_close: snapshot.sent_close,
            received_close: snapshot.received_close,
            kernel: InKernel::default(),
        })
    }

    pub(crate) fn export(self) -> Snapshot {
        let traffic = |keys: &Keys| Traffic { secret: keys.secret(self.suite).to_vec(), sequence: keys.sequence() };
        Snapshot {
            role: self.role,
            suite: self.suite,
            rx: traffic(&self.rx),
            tx: traffic(&self.tx),
            partial: self.rare.map(|rare| rare.partial).unwrap_or_default(),
            quiet: self.quiet,
            canceled: self.canceled,
            owes_update: self.owes_update,
            asks_update: self.asks_update,
            sent_close: self.sent_close,
            received_close: self.received_close,
            group: self.agreed.group(),
            facts: self.agreed.facts(),
        }
    }

    pub(crate) const fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    pub(crate) fn open<'b>(&mut self, wire: &'b mut [u8], out: &mut Buf) -> Result<Opened<'b>, Error> {
        if self.received_close {
            // Section 6.1: data after a closure alert must be ignored.
            return Ok(Opened { used: wire.len(), content: Content::Closed });
        }
        if self.kernel.receives() {
            return self.open_frame(wire, out);
        }
        let result = match self.open_body(wire) {
            Ok(None) => return Ok(Opened { used: 0, content: Content::Partial }),
            Ok(Some((used, inner))) => {
                // Nearly all records: data without padding, nothing unusual going on.
                if let [.., _, DATA] = wire[HEADER..HEADER + inner]
                    && inner <= MAX_PLAIN + 1
                    && self.rare.is_none()
                    && self.rx.sequence() != REKEY_AFTER
                {
                    self.quiet = 0;
                    return Ok(Opened { used, content: Content::Data(&mut wire[HEADER..HEADER + inner - 1]) });
                }
                self.interpret(&wire[HEADER..HEADER + inner]).map(|meaning| (used, meaning))
            }
            Err(refusal) => Err(refusal),
        };
        match result {
            Ok((used, Meaning::Data(len))) => {
                self.quiet = 0;
                self.give_tickets_up();
                Ok(Opened { used, content: Content::Data(&mut wire[HEADER..HEADER + len]) })
            }
            Ok((used, Meaning::Control)) => Ok(Opened { used, content: Content::Control }),
            Ok((used, Meaning::Closed)) => {
                self.received_close = true;
                Ok(Opened { used, content: Content::Closed })
            }
            Err(refusal) => Err(self.refuse(refusal, out)),
        }
    }

    /// Tells the peer why its record is refused.
    #[cold]
    fn refuse(&mut self, Refusal(alert, error): Refusal, out: &mut Buf) -> Error {
        // Section 6.1: nothing is sent after close_notify, an answer to an alert neither.
        if !self.sent_close
            && !matches!(error, Error::Alert(_))
            && let Err(also) = self.seal_record(ALERT, &[2, alert], out)
        {
            log::debug!("no alert: {also}");
        }
        error
    }

    /// Opens the record at the front of `wire` in place, if it is whole; gives its length, and that of content, type and
    /// padding behind the header.
    #[inline]
    fn open_body(&mut self, wire: &mut [u8]) -> Result<Option<(usize, usize)>, Refusal> {
        let [kind, major, _, high, low, ..] = *wire else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if kind != DATA || major != 3 || len > MAX_BODY {
            return Err(not_a_record(kind, major));
        }
        let Some(body) = wire.get_mut(HEADER..HEADER + len) else { return Ok(None) };
        match self.rx.open(self.suite, body) {
            Ok(Some(inner)) => Ok(Some((HEADER + len, inner))),
            Ok(None) => Err(not_authentic()),
            Err(error) => Err(Refusal(INTERNAL_ERROR, error)),
        }
    }

    /// What the inside of a record means: content, type and padding.
    fn interpret(&mut self, inner: &[u8]) -> Result<Meaning, Refusal> {
        if self.rx.sequence() == REKEY_AFTER && !self.kernel.transmits() {
            (self.owes_update, self.asks_update) = (true, true);
        }
        if inner.len() > MAX_PLAIN + 1 {
            return Err(Refusal::new(RECORD_OVERFLOW, "it sent a record with too much in it"));
        }
        // Section 5.4: the content type is the last byte that is not zero; the zeros behind it are padding.
        let end = inner.iter().rposition(|&byte| byte != 0);
        let end = end.ok_or_else(|| Refusal::new(UNEXPECTED_MESSAGE, "it sent a record without a type"))?;
        self.dispatch(inner[end], &inner[..end])
    }

    fn dispatch(&mut self, kind: u8, content: &[u8]) -> Result<Meaning, Refusal> {
        if kind == DATA && !content.is_empty() && self.is_between_messages() {
            return Ok(Meaning::Data(content.len()));
        }
        if self.quiet == MAX_QUIET {
            return Err(Refusal::new(UNEXPECTED_MESSAGE, "it floods the connection with records that hold no data"));
        }
        self.quiet += 1;
        if kind == HANDSHAKE {
            return self.handshake_record(content);
        }
        if !self.is_between_messages() {
            // Section 5.1: nothing comes between the records of a handshake message.
            return Err(Refusal::new(UNEXPECTED_MESSAGE, "it interrupts a handshake message"));
        }
        match kind {
            DATA => Ok(Meaning::Control),
            ALERT => self.alert(content),
            _ => Err(Refusal::new(UNEXPECTED_MESSAGE, "it sent a record of a type that has no place here")),
        }
    }

    /// Section 6: one alert to a record; all but the two closure alerts are fatal, whatever level they claim.
    fn alert(&mut self, content: &[u8]) -> Result<Meaning, Refusal> {
        match *content {
            [_, CLOSE_NOTIFY] => Ok(Meaning::Closed),
            [_, USER_CANCELED] if self.canceled < MAX_CANCELED => {
                self.canceled += 1;
                Ok(Meaning::Control)
            }
            [_, USER_CANCELED] => Err(Refusal::new(UNEXPECTED_MESSAGE, "it keeps canceling")),
            [_, code] => Err(Refusal(code, Error::Alert(alert::name(code)))),
            _ => Err(Refusal::new(DECODE_ERROR, "it sent a malformed alert")),
        }
    }

    /// Handles the handshake messages that `content` completes and keeps the beginning of the next one.
    fn handshake_record(&mut self, content: &[u8]) -> Result<Meaning, Refusal> {
        if content.is_empty() {
            return Err(Refusal::new(UNEXPECTED_MESSAGE, "it sent an empty handshake record"));
        }
        let mut joined = self.rare.as_mut().map(|rare| core::mem::take(&mut rare.partial)).unwrap_or_default();
        let mut rest = if joined.is_empty() {
            content
        } else {
            joined.extend_from_slice(content);
            &joined[..]
        };
        while let Some((message, behind)) = self.next_message(rest)? {
            self.handshake_message(message, behind)?;
            rest = behind;
        }
        if !rest.is_empty() {
            self.rare.get_or_insert_default().partial = rest.to_vec();
        }
        self.tidy();
        Ok(Meaning::Control)
    }

    /// Splits the first message off, header included, if it is whole. One that we would not take is refused at once.
    fn next_message<'m>(&self, bytes: &'m [u8]) -> Result<Option<Cut<'m>>, Refusal> {
        let Some(&kind) = bytes.first() else { return Ok(None) };
        let expected = kind == KEY_UPDATE || (kind == NEW_SESSION_TICKET && self.role == Role::Client);
        if !expected {
            return Err(Refusal::new(UNEXPECTED_MESSAGE, "it sent a handshake message that has no place here"));
        }
        let [_, a, b, c, ..] = *bytes else { return Ok(None) };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        if len > MAX_MESSAGE || (kind == KEY_UPDATE && len != 1) {
            return Err(Refusal::new(DECODE_ERROR, "it sent a handshake message of an impossible length"));
        }
        Ok(bytes.split_at_checked(4 + len))
    }

    fn handshake_message(&mut self, message: &[u8], behind: &[u8]) -> Result<(), Refusal> {
        if let [KEY_UPDATE, _, _, _, request] = *message {
            return self.peer_updates_keys(request, behind);
        }
        // Section 4.6.1: a ticket, which nobody has to use.
        let Some(rare) = self.rare.as_deref_mut() else { return Ok(()) };
        let Some(tickets) = &mut rare.tickets else { return Ok(()) };
        tickets.take(&message[4..]).map_err(|(alert, error)| Refusal(alert, error))?;
        rare.taken += 1;
        if rare.taken == if self.agreed.is_resumed() { TICKETS_RESUMED } else { TICKETS } {
            rare.tickets = None;
        }
        Ok(())
    }

    /// Whether no handshake message has begun and not ended.
    fn is_between_messages(&self) -> bool {
        self.rare.as_ref().is_none_or(|rare| rare.partial.is_empty())
    }

    fn give_tickets_up(&mut self) {
        if self.rx.sequence() >= TICKETS_WITHIN
            && let Some(rare) = &mut self.rare
        {
            rare.tickets = None;
            self.tidy();
        }
    }

    /// Frees what is not needed any more.
    fn tidy(&mut self) {
        if self.rare.as_ref().is_some_and(|rare| rare.is_empty()) {
            self.rare = None;
        }
    }

    /// Section 4.6.3.
    fn peer_updates_keys(&mut self, request: u8, behind: &[u8]) -> Result<(), Refusal> {
        if !behind.is_empty() {
            return Err(Refusal::new(UNEXPECTED_MESSAGE, "it sent more under keys that it has just given up"));
        }
        let requested = match request {
            0 => false,
            1 => true,
            _ => return Err(Refusal::new(ILLEGAL_PARAMETER, "it sent a malformed key update")),
        };
        self.check_kernel_follows(requested)?;
        self.owes_update |= requested;
        self.rx.update(self.suite).map_err(|error| Refusal(INTERNAL_ERROR, error))?;
        if self.kernel.receives() {
            self.tell_kernel(Direction::Receive);
        }
        Ok(())
    }

    pub(crate) fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        if self.sent_close {
            return Err(Error::ApiMisuse("seal after the close"));
        }
        if let [single] = *plain
            && (1..=MAX_PLAIN).contains(&single.len())
            && !self.owes_update
            && !self.kernel.transmits()
            && self.tx.sequence() < REKEY_AFTER
        {
            return self.seal_record(DATA, single, out);
        }
        self.seal_with_limit(plain, out, REKEY_AFTER)
    }

    /// Seals `plain` with others' help, unless the keys have to change meanwhile.
    pub(super) fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, team: &dyn Team) -> Result<(), Error> {
        let len: usize = plain.iter().map(|chunk| chunk.len()).sum();
        let count = len.div_ceil(MAX_PLAIN);
        let keys_last = !self.owes_update && self.tx.sequence() + count as u64 <= REKEY_AFTER;
        if self.sent_close || self.kernel.transmits() || !keys_last || count < 2 {
            return self.seal(plain, out);
        }
        let all = len + count * OVERHEAD;
        self.tx.seal_many(self.suite, DATA, (plain, len), &mut out.reserve(all)[..all], team)?;
        out.commit(all);
        Ok(())
    }

    /// Seals `plain`, changing keys after `limit` records.
    ///
    /// The first record is the short one: it mostly holds a frame's header and must be gathered, while those behind it
    /// lie each in one chunk and are sealed from where they are.
    fn seal_with_limit(&mut self, plain: &[&[u8]], out: &mut Buf, limit: u64) -> Result<(), Error> {
        if self.kernel.transmits() {
            return self.seal_frame(plain, out, limit);
        }
        let mut left: usize = plain.iter().map(|chunk| chunk.len()).sum();
        let mut chunks = Chunks::new(plain);
        while left > 0 {
            if self.owes_update || self.tx.sequence() >= limit {
                self.update_keys(out)?;
            }
            let len = (left - 1) % MAX_PLAIN + 1;
            let record = &mut out.reserve(len + OVERHEAD)[..len + OVERHEAD];
            let slice = chunks.take(len);
            if slice.is_none() {
                chunks.gather(&mut record[HEADER..HEADER + len]);
            }
            self.tx.seal(self.suite, DATA, slice, record)?;
            out.commit(len + OVERHEAD);
            left -= len;
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, out: &mut Buf) -> Result<(), Error> {
        if self.sent_close {
            return Ok(());
        }
        if self.owes_update {
            self.update_keys(out)?;
        }
        self.seal_record(ALERT, &[1, CLOSE_NOTIFY], out)?;
        self.sent_close = true;
        Ok(())
    }

    /// See [`Session::update_keys`](crate::Session::update_keys).
    pub(crate) fn update_keys_now(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        if self.sent_close || self.is_in_kernel() {
            return Err(Error::ApiMisuse(
                "keys are changed before the close, and not by hand where the kernel has them",
            ));
        }
        self.asks_update |= ask;
        self.update_keys(out)
    }

    /// Says that our keys change, and changes them.
    fn update_keys(&mut self, out: &mut Buf) -> Result<(), Error> {
        self.seal_record(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, self.asks_update.into()], out)?;
        self.tx.update(self.suite)?;
        (self.owes_update, self.asks_update) = (false, false);
        if self.kernel.transmits() {
            out.put(&head(NEW_KEYS, 0));
            self.tell_kernel(Direction::Transmit);
        }
        Ok(())
    }

    /// Seals one record.
    #[inline]
    fn seal_record(&mut self, kind: u8, content: &[u8], out: &mut Buf) -> Result<(), Error> {
        if self.kernel.transmits() {
            return self.put_frame(kind, &[content], out);
        }
        let len = content.len() + OVERHEAD;
        self.tx.seal(self.suite, kind, Some(content), &mut out.reserve(len)[..len])?;
        out.commit(len);
        Ok(())
    }
}

#[cold]
fn not_a_record(kind: u8, major: u8) -> Refusal {
    if kind != DATA || major != 3 {
        return Refusal::new(UNEXPECTED_MESSAGE, "it sent something that is not a protected record");
    }
    Refusal::new(RECORD_OVERFLOW, "it sent a record of an impossible length")
}

#[cold]
fn not_authentic() -> Refusal {
    let why = "a record does not authenticate: it was changed on the way, or its keys are wrong";
    Refusal::new(BAD_RECORD_MAC, why)
}

#[cfg(test)]
mod tests;
