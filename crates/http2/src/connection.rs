use crate::block::{self, BlockDecoder, FORGET};
use crate::code::{Code, Fault};
use crate::expect::{Block, Expect};
use crate::fields::leaving;
use crate::frame::{FrameHeader, HEADER, MAX_FRAME, PREFACE, flag, kind, put};
use crate::limits::Limits;
use crate::pace::Pace;
use crate::role::Role;
use crate::settings::{self, FIRST_WINDOW, PeerSettings};
use crate::stream::{Stream, Streams};
use http::{HeaderMap, Request, StatusCode};
use tautline_buf::Buf;

/// One HTTP/2 connection without I/O.
///
/// [`read`](Self::read) takes the peer's bytes and returns one event at a time. All other methods write frames to `out`, which the
/// caller seals and sends. They write nothing else, and keep no bytes that wait: a caller whose peer reads nothing stops to
/// [read](Self::read), so answers to the peer's frames do not pile up.
///
/// ```
/// use core::time::Duration;
/// use http::{HeaderMap, Request, StatusCode};
/// use tautline_buf::Buf;
/// use tautline_http2::{Connection, Event, Limits, Role};
///
/// let (mut client, mut server) = (Connection::new(Role::Client, Limits::default()), Connection::new(Role::Server, Limits::default()));
/// let (mut up, mut down) = (Buf::new(), Buf::new());
/// client.start(&mut up);
/// server.start(&mut down);
/// let request = Request::get("https://example.org/").body(()).unwrap();
/// let stream = client.request(&request, None, true, &mut up).unwrap();
///
/// while !up.is_empty() {
///     let read = server.read(up.filled_mut(), Duration::ZERO, &mut down)?;
///     let used = read.used;
///     if let Some(Event::Request { stream, .. }) = read.event {
///         server.respond(stream, StatusCode::OK, &HeaderMap::new(), false, &mut down);
///         assert_eq!(server.data(stream, b"hello", true, &mut down), 5);
///     }
///     up.take(used);
/// }
/// let mut body = Vec::new();
/// while !down.is_empty() {
///     let read = client.read(down.filled_mut(), Duration::ZERO, &mut up)?;
///     let used = read.used;
///     if let Some(Event::Data { stream: of, data, .. }) = read.event {
///         assert_eq!(of, stream);
///         body.extend_from_slice(data);
///     }
///     down.take(used);
/// }
/// assert_eq!(body, b"hello");
/// # Ok::<(), tautline_http2::Fault>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) peer: PeerSettings,
    /// Whether the peer's settings have arrived.
    pub(crate) has_settings: bool,
    pub(crate) expect: Expect,
    /// The part of a frame that has arrived. Usually without memory.
    pub(crate) partial: Buf,
    pub(crate) block: Option<Box<Block>>,
    pub(crate) decoder: BlockDecoder,
    /// Bytes of the table that the peer keeps for our field sections.
    pub(crate) kept_table: u32,
    pub(crate) streams: Streams,
    /// Streams that the peer has begun and that are open.
    pub(crate) open: u32,
    /// The highest number of a stream that the peer has begun.
    pub(crate) last_theirs: u32,
    /// The number of our next stream.
    pub(crate) next_ours: u32,
    /// Whether a frame has arrived.
    pub(crate) has_begun: bool,
    /// Bytes that we may send on all streams.
    pub(crate) window: i64,
    /// Bytes that the peer may send on all streams.
    pub(crate) credit: u32,
    /// Bytes that have arrived since the last WINDOW_UPDATE for the connection.
    pub(crate) arrived: u32,
    /// Bytes that we have sent and whose windows have not come back, for the stream and for the connection.
    pub(crate) unreturned: u64,
    pub(crate) resets: Pace,
    pub(crate) idle_frames: Pace,
    /// Streams that the peer has given a priority and that have not begun.
    pub(crate) prioritized: Vec<u32>,
    /// Whether the peer has acknowledged our settings, so that it knows our windows.
    pub(crate) is_acknowledged: bool,
    /// Streams above this number are ignored, since GOAWAY named it.
    pub(crate) last_taken: Option<u32>,
    /// The peer makes no streams any more, and takes none of ours.
    pub(crate) peer_goes_away: bool,
}

impl Connection {
    /// A connection of which nothing has arrived.
    #[must_use]
    pub fn new(role: Role, limits: Limits) -> Self {
        Self {
            role,
            limits,
            peer: PeerSettings::new(),
            has_settings: false,
            expect: if role == Role::Server { Expect::Preface(0) } else { Expect::Header },
            partial: Buf::new(),
            block: None,
            decoder: BlockDecoder::new(),
            kept_table: block::TABLE,
            streams: Streams::new(limits.streams),
            open: 0,
            last_theirs: 0,
            has_begun: false,
            next_ours: if role == Role::Client { 1 } else { 2 },
            window: i64::from(FIRST_WINDOW),
            credit: FIRST_WINDOW,
            arrived: 0,
            unreturned: 0,
            resets: Pace::new(limits.resets, limits.refill),
            idle_frames: Pace::new(limits.idle_frames, limits.refill),
            prioritized: Vec::new(),
            is_acknowledged: false,
            last_taken: None,
            peer_goes_away: false,
        }
    }

    /// Writes the preface and our settings: the first bytes of the connection (RFC 9113, section 3.4).
    pub fn start(&mut self, out: &mut Buf) {
        if self.role == Role::Client {
            out.put(PREFACE);
        }
        settings::write(&self.limits, self.role, out);
        let more = self.limits.connection_window.saturating_sub(self.credit);
        if more > 0 {
            self.credit += more;
            put(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes(), out);
        }
    }

    /// Streams that are open in one direction at least.
    #[must_use]
    pub const fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether the peer takes extended CONNECT requests (client).
    #[must_use]
    pub const fn offers_websockets(&self) -> bool {
        self.peer.websockets
    }

    /// The peer's settings, once they have arrived.
    #[must_use]
    pub const fn peer_settings(&self) -> Option<PeerSettings> {
        if self.has_settings { Some(self.peer) } else { None }
    }

    /// Whether the peer knows our settings.
    #[must_use]
    pub const fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Bytes that a stream may send now. `None` if our direction of it has ended.
    pub fn room(&mut self, stream: u32) -> Option<usize> {
        let window = self.window;
        let stream = self.streams.get(stream).filter(|stream| !stream.ours_ended)?;
        Some(usize::try_from(stream.window.min(window).max(0)).unwrap_or(usize::MAX))
    }

    /// Whether the window of all streams together has room.
    #[must_use]
    pub const fn has_window(&self) -> bool {
        self.window > 0
    }

    /// Makes a request (client). Returns the number of its stream. `None` if the peer takes no more streams now, or none any more.
    ///
    /// `protocol` is that of an extended CONNECT request. `end`: no body follows.
    pub fn request(&mut self, request: &Request<()>, protocol: Option<&str>, end: bool, out: &mut Buf) -> Option<u32> {
        let id = self.next_ours;
        if self.peer_goes_away || id >= 1 << 31 || self.streams.len() >= self.peer.max_streams as usize {
            return None;
        }
        self.next_ours += 2;
        let uri = request.uri();
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut fields: Vec<(&[u8], &[u8])> = vec![(b":method", request.method().as_str().as_bytes())];
        if let Some(protocol) = protocol {
            fields.push((b":protocol", protocol.as_bytes()));
        }
        fields.push((b":scheme", uri.scheme_str().unwrap_or("https").as_bytes()));
        fields.push((b":path", path.as_bytes()));
        if let Some(authority) = uri.authority() {
            fields.push((b":authority", authority.as_str().as_bytes()));
        }
        fields.extend(leaving(request.headers()));
        self.streams.add(self.stream(id, end, false));
        self.section(id, end, out, |out| block::put_all(fields, out));
        Some(id)
    }

    /// A stream that begins now.
    pub(crate) fn stream(&self, id: u32, ours_ended: bool, theirs_ended: bool) -> Stream {
        Stream {
            id,
            window: i64::from(self.peer.initial_window),
            credit: i64::from(self.limits.stream_window) + i64::from(self.unknown()),
            taken: 0,
            left: None,
            ours_ended,
            theirs_ended,
            has_head: false,
        }
    }

    /// Bytes of a stream that the peer may send beyond its window, since it does not know that yet (RFC 9113, section 6.9.3).
    pub(crate) const fn unknown(&self) -> u32 {
        if self.is_acknowledged { 0 } else { FIRST_WINDOW.saturating_sub(self.limits.stream_window) }
    }

    /// Answers a request (server). `end`: no body follows. False if the stream does not wait for an answer any more.
    pub fn respond(&mut self, stream: u32, status: StatusCode, headers: &HeaderMap, end: bool, out: &mut Buf) -> bool {
        self.answer(stream, status, end, out, |out| block::put_all(leaving(headers), out))
    }

    /// As [`respond`](Self::respond). `fields` appends the encoded fields.
    pub(crate) fn answer(
        &mut self,
        stream: u32,
        status: StatusCode,
        end: bool,
        out: &mut Buf,
        fields: impl FnOnce(&mut Buf),
    ) -> bool {
        let Some(state) = self.streams.get(stream).filter(|stream| !stream.ours_ended) else { return false };
        state.ours_ended = end;
        self.section(stream, end, out, |out| {
            block::put(b":status", status.as_str().as_bytes(), out);
            fields(out);
        });
        self.close_ended(stream);
        true
    }

    /// Writes a field section, in one frame or several. `fields` appends the encoded fields.
    pub(crate) fn section(&mut self, stream: u32, end: bool, out: &mut Buf, fields: impl FnOnce(&mut Buf)) {
        let begin = out.len();
        out.put(&[0; HEADER]);
        if self.peer.smallest_table < self.kept_table {
            // RFC 7541, section 4.2: the next section says so.
            self.kept_table = 0;
            out.put(&[FORGET]);
        }
        fields(out);
        let most = self.peer.max_frame.min(MAX_FRAME) as usize;
        let first = (out.len() - begin - HEADER).min(most);
        let rest = out.filled()[begin + HEADER + first..].to_vec();
        out.truncate(begin + HEADER + first);
        let last = if rest.is_empty() { flag::END_HEADERS } else { 0 };
        let flags = last | if end { flag::END_STREAM } else { 0 };
        // At most `MAX_FRAME`.
        let len = u32::try_from(first).unwrap_or(u32::MAX);
        let header = FrameHeader { len, kind: kind::HEADERS, flags, stream };
        out.filled_mut()[begin..begin + HEADER].copy_from_slice(&header.bytes());
        let mut pieces = rest.chunks(most).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            put(kind::CONTINUATION, flags, stream, piece, out);
        }
    }

    /// Sends a part of a body. Returns the bytes that the windows of stream and connection allow. `end` ends our direction, once all
    /// bytes are taken.
    ///
    /// [`Event::Window`](crate::Event::Window) says when more may be sent.
    pub fn data(&mut self, stream: u32, payload: &[u8], end: bool, out: &mut Buf) -> usize {
        let Some(room) = self.room(stream) else { return 0 };
        let (taken, is_whole) = (payload.len().min(room), payload.len() <= room);
        let end = end && is_whole;
        if taken == 0 && !end {
            return 0;
        }
        let most = self.peer.max_frame as usize;
        let mut rest = &payload[..taken];
        loop {
            let (piece, behind) = rest.split_at(rest.len().min(most));
            let flags = if end && behind.is_empty() { flag::END_STREAM } else { 0 };
            put(kind::DATA, flags, stream, piece, out);
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        // A window fits.
        let bytes = i64::try_from(taken).unwrap_or(i64::MAX);
        self.window -= bytes;
        self.unreturned += 2 * taken as u64;
        if let Some(state) = self.streams.get(stream) {
            state.window -= bytes;
            state.ours_ended |= end;
        }
        if end {
            self.close_ended(stream);
        }
        taken
    }

    /// The application has taken bytes of a stream's body: the peer may send as many again.
    pub fn took(&mut self, stream: u32, bytes: usize, out: &mut Buf) {
        let most = self.limits.stream_window;
        let Some(state) = self.streams.get(stream).filter(|stream| !stream.theirs_ended) else { return };
        state.taken = state.taken.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if state.taken >= most / 2 {
            let room = u32::try_from(i64::from(most) - state.credit).unwrap_or_default();
            let back = state.taken.min(room);
            state.taken -= back;
            if back > 0 {
                state.credit += i64::from(back);
                put(kind::WINDOW_UPDATE, 0, stream, &back.to_be_bytes(), out);
            }
        }
    }

    /// Ends a stream at once. The other streams go on.
    pub fn reset(&mut self, stream: u32, code: Code, out: &mut Buf) {
        if self.drop_stream(stream) {
            self.streams.note_reset(stream);
            put(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
        }
    }

    /// Asks the peer for a sign of life. [`Event::Pong`](crate::Event::Pong) has the same bytes.
    pub fn ping(&self, payload: [u8; 8], out: &mut Buf) {
        put(kind::PING, 0, 0, &payload, out);
    }

    /// Ends the connection: the peer makes no more streams. Streams that it has begun go on, if `code` is
    /// [`NO_ERROR`](Code::NO_ERROR).
    pub fn go_away(&mut self, code: Code, why: &str, out: &mut Buf) {
        let last = *self.last_taken.get_or_insert(self.last_theirs);
        let mut payload = [last.to_be_bytes(), code.0.to_be_bytes()].concat();
        payload.extend_from_slice(why.as_bytes());
        put(kind::GOAWAY, 0, 0, &payload, out);
    }

    /// Memory of what the peer has said, in bytes: of frames and field sections that are not whole, and of the fields that its
    /// later sections may refer to.
    #[must_use]
    pub fn held(&self) -> usize {
        self.partial.capacity() + self.block.as_ref().map_or(0, |block| block.bytes.capacity()) + self.decoder.held()
    }

    /// Whether no stream is open and no new one is taken.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.streams.len() == 0 && (self.last_taken.is_some() || self.peer_goes_away)
    }

    /// Numbers of the open streams.
    pub fn open_streams(&self) -> impl Iterator<Item = u32> {
        self.streams.iter().map(|stream| stream.id)
    }

    /// Whether the peer begins streams with this number.
    pub(crate) const fn is_theirs(&self, stream: u32) -> bool {
        (stream % 2 == 1) == matches!(self.role, Role::Server)
    }

    pub(crate) fn drop_stream(&mut self, stream: u32) -> bool {
        let was_open = self.streams.remove(stream);
        self.open -= u32::from(was_open && self.is_theirs(stream));
        was_open
    }

    pub(crate) fn close_ended(&mut self, stream: u32) {
        let before = self.streams.len();
        self.streams.remove_ended(stream);
        self.open -= u32::from(self.streams.len() < before && self.is_theirs(stream));
    }

    /// Counts a frame that asks for an answer or leads to nothing.
    pub(crate) fn count_idle(&mut self, now: core::time::Duration) -> Result<(), Fault> {
        if self.idle_frames.take(now) { Ok(()) } else { Err(Fault::flood("too many frames that lead to nothing")) }
    }

    /// Counts a stream that was reset by the peer, or by a fault of the peer (CVE-2023-44487, CVE-2025-8671).
    pub(crate) fn count_reset(&mut self, now: core::time::Duration) -> Result<(), Fault> {
        if self.resets.take(now) { Ok(()) } else { Err(Fault::flood("too many streams were reset")) }
    }
}
