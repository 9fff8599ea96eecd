//! TLS 1.3 after the handshake (RFC 8446, sections 4.6, 5 and 6).

mod in_kernel;
mod kernel;

use crate::chunks::Chunks;
use crate::compact_tls_info::CompactTlsInfo;
use crate::keys::{Keys, OVERHEAD};
use crate::schedule::{Secret, Suite};
use crate::snapshot::{Role, Snapshot, Traffic};
use in_kernel::InKernel;
use std::collections::VecDeque;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{Direction, NEW_KEYS, TrafficKeys, head};
use tautline_tls::alert::Alert;
use tautline_tls::record::{self, BadHeader, HEADER, MAX_PLAIN, Stage};
use tautline_tls::{Content, Error, Helpers, Opened, Plain};

/// Longest body of a protected record in bytes (section 5.2).
const MAX_BODY: usize = MAX_PLAIN + 256;

/// How many records a key protects before it is replaced: a third of the limit of AES-GCM (section 5.5).
///
/// The sender is to keep that limit, but few libraries count. A peer whose key has protected this many records is
/// therefore asked for a new one.
///
/// Records that do not authenticate have a limit, too. It needs no counter, since the first such record ends the
/// connection.
const REKEY_AFTER: u64 = 1 << 23;

/// Longest handshake message in bytes. Only a ticket can be long.
const MAX_MESSAGE: usize = 1 << 16;

/// How many tickets a client accepts from a connection that was not resumed.
///
/// Servers send one or two, right after the handshake. While it waits for them, a client keeps about 1 KiB of the
/// library's state and the server's certificates.
pub const TICKETS: u8 = 2;

/// How many tickets a client accepts from a resumed connection, which used one up.
pub const TICKETS_RESUMED: u8 = 1;

/// After this many records, the next data ends a client's wait for tickets.
const TICKETS_WITHIN: u64 = 16;

/// Most consecutive records without application data.
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

/// The receiver of a client's tickets.
pub trait Tickets: Send {
    /// Takes the body of a NewSessionTicket (section 4.6.1), without its header.
    ///
    /// # Errors
    /// The alert for the peer, and the error that names its fault.
    fn take(&mut self, body: &[u8]) -> Result<(), (Alert, Error)>;
}

/// An established TLS 1.3 connection.
pub struct Records {
    rx: Keys,
    tx: Keys,
    info: CompactTlsInfo,
    cold: Option<Box<Cold>>,
    suite: Suite,
    role: Role,
    quiet: u8,
    canceled: u8,
    /// A KeyUpdate of ours is due before the next data (section 4.6.3).
    owes_update: bool,
    /// That KeyUpdate requests one from the peer.
    asks_update: bool,
    sent_close: bool,
    received_close: bool,
    kernel: InKernel,
    /// The fatal alert that was sent.
    sent_alert: Option<Alert>,
}

/// State that most connections do not need most of the time.
#[derive(Default)]
struct Cold {
    /// The beginning of a handshake message that is split over records.
    partial: Vec<u8>,
    /// The receiver of a client's tickets, until it has enough of them.
    tickets: Option<Box<dyn Tickets>>,
    /// How many tickets it took.
    taken: u8,
    /// Keys that the kernel has not got yet.
    for_kernel: VecDeque<TrafficKeys>,
}

impl Cold {
    fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.tickets.is_none() && self.for_kernel.is_empty()
    }
}

/// The reason why a record is refused: the alert for the peer, and our error.
struct Refusal(Alert, Error);

impl Refusal {
    fn new(alert: Alert, why: &str) -> Self {
        Self(alert, Error::Peer(why.to_owned()))
    }
}

/// A handshake message with its header, and the bytes behind it.
type Cut<'m> = (&'m [u8], &'m [u8]);

/// The meaning of an opened record.
enum Meaning {
    /// Application data of this many bytes.
    Data(usize),
    Control,
    Closed,
}

impl Records {
    /// Takes a connection over after its handshake.
    ///
    /// The first keys are for receiving, the second for sending. `tickets` gets a client's tickets.
    #[must_use]
    pub fn new(
        role: Role,
        suite: Suite,
        (rx, tx): (Keys, Keys),
        info: CompactTlsInfo,
        tickets: Option<Box<dyn Tickets>>,
    ) -> Self {
        Self {
            rx,
            tx,
            info,
            cold: tickets.map(|tickets| Box::new(Cold { tickets: Some(tickets), ..Cold::default() })),
            suite,
            role,
            quiet: 0,
            canceled: 0,
            owes_update: false,
            asks_update: false,
            sent_close: false,
            received_close: false,
            kernel: InKernel::default(),
            sent_alert: None,
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
            info: CompactTlsInfo::new(suite, snapshot.facts.clone()),
            cold: (!partial.is_empty()).then(|| Box::new(Cold { partial, ..Cold::default() })),
            suite,
            role: snapshot.role,
            quiet: snapshot.quiet,
            canceled: snapshot.canceled,
            owes_update: snapshot.owes_update || snapshot.asks_update,
            asks_update: snapshot.asks_update,
            sent_close: snapshot.sent_close,
            received_close: snapshot.received_close,
            kernel: InKernel::default(),
            sent_alert: None,
        })
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let traffic = |keys: &Keys| Traffic { secret: keys.secret(self.suite).to_vec(), sequence: keys.sequence() };
        Snapshot {
            role: self.role,
            suite: self.suite,
            rx: traffic(&self.rx),
            tx: traffic(&self.tx),
            partial: self.cold.as_ref().map(|cold| cold.partial.clone()).unwrap_or_default(),
            quiet: self.quiet,
            canceled: self.canceled,
            owes_update: self.owes_update,
            asks_update: self.asks_update,
            sent_close: self.sent_close,
            received_close: self.received_close,
            facts: self.info.expand(),
        }
    }

    /// The fatal alert that was sent.
    pub(crate) const fn sent_alert(&self) -> Option<Alert> {
        self.sent_alert
    }

    pub(crate) const fn info(&self) -> &CompactTlsInfo {
        &self.info
    }

    pub(crate) fn open(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<Opened, Error> {
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
                // The fast path of nearly all records: data without padding, and no cold state.
                if let [.., _, DATA] = wire[HEADER..HEADER + inner]
                    && inner <= MAX_PLAIN + 1
                    && self.cold.is_none()
                    && self.rx.sequence() != REKEY_AFTER
                {
                    self.quiet = 0;
                    return Ok(Opened { used, content: Content::Data(Plain::in_wire(HEADER..HEADER + inner - 1)) });
                }
                self.interpret(&wire[HEADER..HEADER + inner]).map(|meaning| (used, meaning))
            }
            Err(refusal) => Err(refusal),
        };
        match result {
            Ok((used, Meaning::Data(len))) => {
                self.quiet = 0;
                self.stop_taking_tickets();
                Ok(Opened { used, content: Content::Data(Plain::in_wire(HEADER..HEADER + len)) })
            }
            Ok((used, Meaning::Control)) => Ok(Opened { used, content: Content::Control }),
            Ok((used, Meaning::Closed)) => {
                self.received_close = true;
                Ok(Opened { used, content: Content::Closed })
            }
            Err(refusal) => Err(self.refuse(refusal, out)),
        }
    }

    /// Appends the alert for the peer and returns our error.
    #[cold]
    fn refuse(&mut self, Refusal(alert, error): Refusal, out: &mut Buf) -> Error {
        // Section 6.1: nothing is sent after close_notify, and no alert answers an alert.
        if !self.sent_close && !matches!(error, Error::Alert(_)) {
            match self.seal_rare(ALERT, &[2, alert.0], out) {
                Ok(()) => self.sent_alert = Some(alert),
                Err(also) => log::debug!("no alert was sent: {also}"),
            }
        }
        error
    }

    /// Opens the record at the front of `wire` in place; `None` if it is not whole.
    ///
    /// Returns the length of the record, and that of content, type and padding behind its header.
    #[inline]
    fn open_body(&mut self, wire: &mut [u8]) -> Result<Option<(usize, usize)>, Refusal> {
        let [kind, major, _, high, low, ..] = *wire else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if [kind, major] != [DATA, 3] || len > MAX_BODY {
            return Err(bad_header(wire));
        }
        let Some(body) = wire.get_mut(HEADER..HEADER + len) else { return Ok(None) };
        match self.rx.open(self.suite, body) {
            Ok(Some(inner)) => Ok(Some((HEADER + len, inner))),
            Ok(None) => Err(not_authentic()),
            Err(error) => Err(Refusal(Alert::INTERNAL_ERROR, error)),
        }
    }

    /// Interprets the plaintext of a record: content, type and padding.
    fn interpret(&mut self, inner: &[u8]) -> Result<Meaning, Refusal> {
        if self.rx.sequence() == REKEY_AFTER && !self.kernel.transmits() {
            (self.owes_update, self.asks_update) = (true, true);
        }
        if inner.len() > MAX_PLAIN + 1 {
            return Err(Refusal::new(Alert::RECORD_OVERFLOW, "it sent a record with more than 16384 bytes of content"));
        }
        // Section 5.4: the content type is the last byte that is not zero; the zeros behind it are padding.
        let end = inner.iter().rposition(|&byte| byte != 0);
        let end = end.ok_or_else(|| Refusal::new(Alert::UNEXPECTED_MESSAGE, "it sent a record without a type"))?;
        self.dispatch(inner[end], &inner[..end])
    }

    fn dispatch(&mut self, kind: u8, content: &[u8]) -> Result<Meaning, Refusal> {
        if kind == DATA && !content.is_empty() && self.is_between_messages() {
            return Ok(Meaning::Data(content.len()));
        }
        if self.quiet == MAX_QUIET {
            return Err(Refusal::new(
                Alert::UNEXPECTED_MESSAGE,
                "it floods the connection with records that hold no data",
            ));
        }
        self.quiet += 1;
        if kind == HANDSHAKE {
            return self.handshake_record(content);
        }
        if !self.is_between_messages() {
            // Section 5.1: nothing comes between the records of a handshake message.
            return Err(Refusal::new(Alert::UNEXPECTED_MESSAGE, "it interrupts a handshake message"));
        }
        match kind {
            DATA => Ok(Meaning::Control),
            ALERT => self.alert(content),
            _ => Err(Refusal::new(Alert::UNEXPECTED_MESSAGE, "it sent a record of a type that has no place here")),
        }
    }

    /// Handles an alert (section 6), one per record.
    ///
    /// All alerts but the two closure alerts are fatal, whatever their level.
    fn alert(&mut self, content: &[u8]) -> Result<Meaning, Refusal> {
        let [_, alert] = *content else {
            return Err(Refusal::new(Alert::DECODE_ERROR, "it sent a malformed alert"));
        };
        match Alert(alert) {
            Alert::CLOSE_NOTIFY => Ok(Meaning::Closed),
            Alert::USER_CANCELED if self.canceled < MAX_CANCELED => {
                self.canceled += 1;
                Ok(Meaning::Control)
            }
            Alert::USER_CANCELED => {
                Err(Refusal::new(Alert::UNEXPECTED_MESSAGE, "it keeps canceling: too many user_canceled alerts"))
            }
            alert => Err(Refusal(alert, Error::Alert(alert))),
        }
    }

    /// Handles the handshake messages that `content` completes and keeps the beginning of the next one.
    fn handshake_record(&mut self, content: &[u8]) -> Result<Meaning, Refusal> {
        if content.is_empty() {
            return Err(Refusal::new(Alert::UNEXPECTED_MESSAGE, "it sent an empty handshake record"));
        }
        let mut joined = self.cold.as_mut().map(|cold| core::mem::take(&mut cold.partial)).unwrap_or_default();
        let mut rest = if joined.is_empty() {
            content
        } else {
            joined.extend_from_slice(content);
            &joined[..]
        };
        while let Some((message, behind)) = self.split_message(rest)? {
            self.handshake_message(message, behind)?;
            rest = behind;
        }
        if !rest.is_empty() {
            self.cold.get_or_insert_default().partial = rest.to_vec();
        }
        self.free_cold();
        Ok(Meaning::Control)
    }

    /// Splits the first message off if it is whole. A message that has no place here is refused by its first bytes.
    fn split_message<'m>(&self, bytes: &'m [u8]) -> Result<Option<Cut<'m>>, Refusal> {
        let Some(&kind) = bytes.first() else { return Ok(None) };
        let expected = kind == KEY_UPDATE || (kind == NEW_SESSION_TICKET && self.role == Role::Client);
        if !expected {
            return Err(Refusal::new(Alert::UNEXPECTED_MESSAGE, "it sent a handshake message that has no place here"));
        }
        let [_, a, b, c, ..] = *bytes else { return Ok(None) };
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        if len > MAX_MESSAGE || (kind == KEY_UPDATE && len != 1) {
            return Err(Refusal::new(Alert::DECODE_ERROR, "it sent a handshake message of an impossible length"));
        }
        Ok(bytes.split_at_checked(4 + len))
    }

    fn handshake_message(&mut self, message: &[u8], behind: &[u8]) -> Result<(), Refusal> {
        if let [KEY_UPDATE, _, _, _, request] = *message {
            return self.peer_updates_keys(request, behind);
        }
        // Section 4.6.1: a ticket, which a client may ignore.
        let Some(cold) = self.cold.as_deref_mut() else { return Ok(()) };
        let Some(tickets) = &mut cold.tickets else { return Ok(()) };
        tickets.take(&message[4..]).map_err(|(alert, error)| Refusal(alert, error))?;
        cold.taken += 1;
        if cold.taken == if self.info.is_resumed() { TICKETS_RESUMED } else { TICKETS } {
            cold.tickets = None;
        }
        Ok(())
    }

    /// Whether no handshake message is incomplete.
    fn is_between_messages(&self) -> bool {
        self.cold.as_ref().is_none_or(|cold| cold.partial.is_empty())
    }

    /// Drops the receiver of tickets once they are no longer expected.
    fn stop_taking_tickets(&mut self) {
        if self.rx.sequence() >= TICKETS_WITHIN
            && let Some(cold) = &mut self.cold
        {
            cold.tickets = None;
            self.free_cold();
        }
    }

    /// Frees the cold state if it is empty.
    fn free_cold(&mut self) {
        if self.cold.as_ref().is_some_and(|cold| cold.is_empty()) {
            self.cold = None;
        }
    }

    /// Handles a KeyUpdate (section 4.6.3).
    fn peer_updates_keys(&mut self, request: u8, behind: &[u8]) -> Result<(), Refusal> {
        if !behind.is_empty() {
            return Err(Refusal::new(
                Alert::UNEXPECTED_MESSAGE,
                "it sent more under the old keys after its key update",
            ));
        }
        let requested = match request {
            0 => false,
            1 => true,
            _ => return Err(Refusal::new(Alert::ILLEGAL_PARAMETER, "it sent a malformed key update")),
        };
        self.check_kernel_can_rekey(requested)?;
        self.owes_update |= requested;
        self.rx.update(self.suite).map_err(|error| Refusal(Alert::INTERNAL_ERROR, error))?;
        if self.kernel.receives() {
            self.queue_kernel_keys(Direction::Receive);
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

    /// Seals `plain` with the help of other threads, unless the keys change on the way.
    pub(super) fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, helpers: &dyn Helpers) -> Result<(), Error> {
        let len: usize = plain.iter().map(|chunk| chunk.len()).sum();
        let count = len.div_ceil(MAX_PLAIN);
        let keys_last = !self.owes_update && self.tx.sequence() + count as u64 <= REKEY_AFTER;
        if self.sent_close || self.kernel.transmits() || !keys_last || count < 2 {
            return self.seal(plain, out);
        }
        let all = len + count * OVERHEAD;
        self.tx.seal_many(self.suite, DATA, (plain, len), &mut out.reserve(all)[..all], helpers)?;
        out.commit(all);
        Ok(())
    }

    /// Seals `plain`, and changes keys after `limit` records.
    ///
    /// The first record is the short one. It usually has a frame's header and must be gathered. Each record behind it
    /// then lies in one chunk and is sealed from there.
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
        self.seal_rare(ALERT, &[1, Alert::CLOSE_NOTIFY.0], out)?;
        self.sent_close = true;
        Ok(())
    }

    /// See [`Session::seal_into`](tautline_tls::Session::seal_into).
    #[inline]
    pub(crate) fn seal_into(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Option<usize>, Error> {
        match *plain {
            [single] if (1..=MAX_PLAIN).contains(&single.len()) => {
                let all = single.len() + OVERHEAD;
                let Some(record) = out.get_mut(..all).filter(|_| self.seals_with_these_keys(1)) else {
                    return Ok(None);
                };
                self.tx.seal(self.suite, DATA, Some(single), record)?;
                Ok(Some(all))
            }
            _ => self.seal_all_into(plain, out),
        }
    }

    fn seal_all_into(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Option<usize>, Error> {
        let len: usize = plain.iter().map(|chunk| chunk.len()).sum();
        let count = len.div_ceil(MAX_PLAIN);
        let all = len + count * OVERHEAD;
        if all > out.len() || !self.seals_with_these_keys(count) {
            return Ok(None);
        }
        let mut chunks = Chunks::new(plain);
        let (mut left, mut written) = (len, 0);
        while left > 0 {
            let len = (left - 1) % MAX_PLAIN + 1;
            let record = &mut out[written..written + len + OVERHEAD];
            let slice = chunks.take(len);
            if slice.is_none() {
                chunks.gather(&mut record[HEADER..HEADER + len]);
            }
            self.tx.seal(self.suite, DATA, slice, record)?;
            written += len + OVERHEAD;
            left -= len;
        }
        Ok(Some(all))
    }

    /// Whether the next `count` records of data are sealed here, and with the keys of now.
    #[inline]
    fn seals_with_these_keys(&self, count: usize) -> bool {
        !self.owes_update
            && !self.sent_close
            && !self.kernel.transmits()
            && self.tx.sequence().saturating_add(count as u64) <= REKEY_AFTER
    }

    /// See [`Session::export_keying_material`](tautline_tls::Session::export_keying_material).
    pub(crate) fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        self.info.export_keying_material(self.suite, label, context, out)
    }

    /// See [`Session::update_keys`](tautline_tls::Session::update_keys).
    pub(crate) fn update_keys_now(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        if self.sent_close || self.is_in_kernel() {
            return Err(Error::ApiMisuse(
                "keys cannot be changed after the close, nor by a call once the kernel has them",
            ));
        }
        self.asks_update |= ask;
        self.update_keys(out)
    }

    /// Seals a KeyUpdate and changes our keys.
    fn update_keys(&mut self, out: &mut Buf) -> Result<(), Error> {
        self.seal_rare(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, self.asks_update.into()], out)?;
        self.tx.update(self.suite)?;
        (self.owes_update, self.asks_update) = (false, false);
        if self.kernel.transmits() {
            out.put(&head(NEW_KEYS, 0));
            self.queue_kernel_keys(Direction::Transmit);
        }
        Ok(())
    }

    /// Seals an alert or a KeyUpdate.
    #[cold]
    fn seal_rare(&mut self, kind: u8, content: &[u8], out: &mut Buf) -> Result<(), Error> {
        if self.kernel.transmits() {
            return self.put_frame(kind, &[content], out);
        }
        self.seal_record(kind, content, out)
    }

    /// Seals one record of a connection whose records the kernel does not seal.
    #[inline(always)]
    fn seal_record(&mut self, kind: u8, content: &[u8], out: &mut Buf) -> Result<(), Error> {
        let len = content.len() + OVERHEAD;
        self.tx.seal(self.suite, kind, Some(content), &mut out.reserve(len)[..len])?;
        out.commit(len);
        Ok(())
    }
}

#[cold]
fn bad_header(wire: &[u8]) -> Refusal {
    match record::check(wire, Stage::Open13) {
        Err(BadHeader { alert, what }) => Refusal::new(alert, what),
        Ok(()) => Refusal::new(Alert::RECORD_OVERFLOW, "it sent a record of an impossible length"),
    }
}

#[cold]
fn not_authentic() -> Refusal {
    let why = "a record does not authenticate: it was changed on the way, or its keys are wrong";
    Refusal::new(Alert::BAD_RECORD_MAC, why)
}

#[cfg(test)]
mod tests;
