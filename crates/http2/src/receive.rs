//! The receiving path: bytes → frames → events.

use crate::block::{self, Fields};
use crate::code::{Code, Fault};
use crate::connection::Connection;
use crate::event::{Event, Read};
use crate::expect::{Block, Data, Expect};
use crate::fields;
use crate::frame::{FrameHeader, HEADER, MAX_FRAME, MAX_WINDOW, PREFACE, flag, kind, put};
use crate::role::Role;
use crate::settings;
use core::mem;
use core::time::Duration;
use http::{Method, StatusCode};
use tautline_buf::Buf;
use tautline_io::StreamFault;

/// Bytes of a WINDOW_UPDATE that always count as one which leads to nothing.
const LEAST_UPDATE: u32 = 16;
/// The rule of RFC 7540, section 5.3.1.
const ON_ITSELF: &str = "a stream depends on itself";

/// A step that ended without an event, or with one that borrows nothing.
type Step = Result<Option<Event<'static>>, Fault>;

impl Connection {
    /// Reads bytes of the peer up to the next event. Writes the answers that HTTP/2 demands.
    ///
    /// # Errors
    /// [`Fault`]: the connection is over. Send its code by [`go_away`](Self::go_away), and nothing behind.
    pub fn read<'a>(&mut self, wire: &'a mut [u8], now: Duration, out: &mut Buf) -> Result<Read<'a>, Fault> {
        let mut used = 0;
        loop {
            let rest = &wire[used..];
            let event = match mem::replace(&mut self.expect, Expect::Header) {
                Expect::Preface(begun) => {
                    let len = rest.len().min(PREFACE.len() - begun);
                    if rest[..len] != PREFACE[begun..begun + len] {
                        return Err(Fault::protocol("the connection does not begin with the preface of HTTP/2"));
                    }
                    used += len;
                    if begun + len < PREFACE.len() {
                        self.expect = Expect::Preface(begun + len);
                        return Ok(Read { used, event: None });
                    }
                    None
                }
                Expect::Header => {
                    let (len, header) = self.header(rest);
                    used += len;
                    let Some(header) = header else { return Ok(Read { used, event: None }) };
                    self.begin(header, now, out)?
                }
                Expect::Payload(header) => {
                    let missing = header.len as usize - self.partial.len();
                    if rest.len() < missing {
                        self.partial.put(rest);
                        self.expect = Expect::Payload(header);
                        return Ok(Read { used: wire.len(), event: None });
                    }
                    let payload = &rest[..missing];
                    used += missing;
                    if self.partial.is_empty() {
                        self.frame(header, payload, now, out)?
                    } else {
                        let mut whole = mem::take(&mut self.partial);
                        whole.put(payload);
                        self.frame(header, whole.filled(), now, out)?
                    }
                }
                Expect::Skip(left) => {
                    let len = rest.len().min(left as usize);
                    used += len;
                    // At most `left`.
                    let left = left - u32::try_from(len).unwrap_or(left);
                    if left > 0 {
                        self.expect = Expect::Skip(left);
                        return Ok(Read { used, event: None });
                    }
                    None
                }
                Expect::Data(data) => match self.part(data, rest, now, out)? {
                    (len, Body::Part { stream, end }) => {
                        let data = &mut wire[used..used + len];
                        return Ok(Read { used: used + len, event: Some(Event::Data { stream, data, end }) });
                    }
                    (_, Body::Awaited) => return Ok(Read { used, event: None }),
                    (len, Body::Nothing) => {
                        used += len;
                        None
                    }
                    (len, Body::Wrong(event)) => {
                        used += len;
                        Some(event)
                    }
                },
            };
            if event.is_some() {
                return Ok(Read { used, event });
            }
        }
    }

    /// Reads the header of a frame. Returns the bytes that were used.
    fn header(&mut self, rest: &[u8]) -> (usize, Option<FrameHeader>) {
        if self.partial.is_empty()
            && let Some(bytes) = rest.first_chunk::<HEADER>()
        {
            return (HEADER, Some(FrameHeader::parse(*bytes)));
        }
        let len = rest.len().min(HEADER - self.partial.len());
        self.partial.put(&rest[..len]);
        let header = self.partial.filled().first_chunk::<HEADER>().copied().map(FrameHeader::parse);
        if header.is_some() {
            self.partial.clear();
        }
        (len, header)
    }

    /// A frame begins: checks what its header says, and decides how its payload is read.
    fn begin(&mut self, header: FrameHeader, now: Duration, out: &mut Buf) -> Step {
        if header.len > MAX_FRAME {
            return Err(Fault::size("a frame is larger than 16,384 bytes"));
        }
        if self.is_first(header) {
            // RFC 9113, section 3.4: SETTINGS are the first frame.
            return Err(Fault::protocol("the first frame is not SETTINGS"));
        }
        if let Some(block) = &self.block
            && (header.kind != kind::CONTINUATION || header.stream != block.stream)
        {
            return Err(Fault::protocol("a field section is interrupted by another frame"));
        }
        self.has_begun = true;
        if header.kind == kind::DATA {
            return self.begin_data(header, now, out);
        }
        let (len, stream) = (header.len, header.stream);
        match header.kind {
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE if stream != 0 => {
                return Err(Fault::protocol("a frame of the connection names a stream"));
            }
            kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION if stream == 0 => {
                return Err(Fault::protocol("a frame of a stream names none"));
            }
            kind::SETTINGS if header.has(flag::ACK) && len != 0 || len % 6 != 0 => {
                return Err(Fault::size("a SETTINGS frame has a wrong size"));
            }
            kind::PING if len != 8 => return Err(Fault::size("a PING frame has not 8 bytes")),
            kind::RST_STREAM | kind::WINDOW_UPDATE if len != 4 => {
                return Err(Fault::size("an RST_STREAM or WINDOW_UPDATE frame has not 4 bytes"));
            }
            kind::GOAWAY if len < 8 => return Err(Fault::size("a GOAWAY frame has less than 8 bytes")),
            kind::PRIORITY_UPDATE if len < 4 => {
                return Err(Fault::size("a PRIORITY_UPDATE frame has less than 4 bytes"));
            }
            kind::PUSH_PROMISE => return Err(Fault::protocol("a PUSH_PROMISE frame, which was not allowed")),
            kind::CONTINUATION if self.block.is_none() => {
                return Err(Fault::protocol("a CONTINUATION frame continues nothing"));
            }
            0..=9 | kind::PRIORITY_UPDATE => {}
            // RFC 9113, section 4.1: unknown types are ignored.
            _ => {
                self.count_idle(now)?;
                self.expect = Expect::Skip(len);
                return Ok(None);
            }
        }
        self.expect = Expect::Payload(header);
        Ok(None)
    }

    /// Whether this is the first frame, and it is not SETTINGS.
    const fn is_first(&self, header: FrameHeader) -> bool {
        !self.has_begun && (header.kind != kind::SETTINGS || header.has(flag::ACK))
    }

    fn begin_data(&mut self, header: FrameHeader, now: Duration, out: &mut Buf) -> Step {
        let FrameHeader { len, stream, .. } = header;
        if stream == 0 {
            return Err(Fault::protocol("a DATA frame names no stream"));
        }
        if len > self.credit {
            return Err(Fault::flow("more DATA than the window of the connection allows"));
        }
        self.credit -= len;
        self.return_credit(len, out);
        self.expect = Expect::Skip(len);
        if header.has(flag::PADDED) && len == 0 {
            return Err(Fault::size("a padded DATA frame has no byte"));
        }
        let is_new = if self.is_theirs(stream) { stream > self.last_theirs } else { !self.is_ours(stream) };
        let end = header.has(flag::END_STREAM);
        if len == 0 && !end {
            self.count_idle(now)?;
        }
        let Some(state) = self.streams.get(stream) else {
            return match () {
                () if is_new => Err(Fault::protocol("a DATA frame for a stream that has not begun")),
                // Frames of streams that this end has reset may be on their way.
                () if self.streams.was_reset(stream) || self.last_taken.is_some_and(|last| stream > last) => Ok(None),
                () => {
                    self.count_reset(now)?;
                    put(kind::RST_STREAM, 0, stream, &Code::STREAM_CLOSED.0.to_be_bytes(), out);
                    Ok(Some(Event::Refused { stream, why: "DATA for a stream that has ended".into() }))
                }
            };
        };
        if state.theirs_ended {
            return self.wrong(stream, Code::STREAM_CLOSED, "DATA behind the end of a stream", now, out);
        }
        if !state.has_head {
            return self.wrong(stream, Code::PROTOCOL_ERROR, "DATA before the head of a response", now, out);
        }
        if i64::from(len) > state.credit {
            return self.wrong(stream, Code::FLOW_CONTROL_ERROR, StreamFault::Window, now, out);
        }
        state.credit -= i64::from(len);
        let is_padded = header.has(flag::PADDED);
        self.expect = Expect::Data(Data { stream, left: len, is_padded, padding: 0, end });
        Ok(None)
    }

    /// Reads from a DATA frame. Returns the bytes that were used.
    fn part(&mut self, mut data: Data, rest: &[u8], now: Duration, out: &mut Buf) -> Result<(usize, Body), Fault> {
        let is_awaited = rest.is_empty() && (data.is_padded || data.left > 0);
        if is_awaited {
            self.expect = Expect::Data(data);
            return Ok((0, Body::Awaited));
        }
        if data.is_padded {
            self.pad(&mut data, rest[0], out)?;
            if data.left == 0 && !data.end {
                // Padding alone.
                self.count_idle(now)?;
            }
            self.expect = Expect::Data(data);
            return Ok((1, Body::Nothing));
        }
        let len = rest.len().min(data.left as usize);
        Ok((len, self.body(data, len, now, out)?))
    }

    /// The length of a DATA frame's padding has arrived. The padding needs no room of the application.
    fn pad(&mut self, data: &mut Data, padding: u8, out: &mut Buf) -> Result<(), Fault> {
        data.is_padded = false;
        data.padding = u32::from(padding);
        data.left -= 1;
        if data.padding > data.left {
            return Err(Fault::protocol("a DATA frame has more padding than bytes"));
        }
        data.left -= data.padding;
        self.took(data.stream, usize::from(padding) + 1, out);
        Ok(())
    }

    /// `len` bytes of a body have arrived.
    fn body(&mut self, mut data: Data, len: usize, now: Duration, out: &mut Buf) -> Result<Body, Fault> {
        // A frame has at most 16 KiB.
        let bytes = u32::try_from(len).unwrap_or(u32::MAX);
        data.left -= bytes;
        let is_last = data.left == 0;
        self.expect = match () {
            () if !is_last => Expect::Data(data),
            () if data.padding > 0 => Expect::Skip(data.padding),
            () => Expect::Header,
        };
        let end = is_last && data.end;
        let Some(state) = self.streams.get(data.stream) else {
            // It was reset amid the frame.
            return Ok(Body::Nothing);
        };
        if let Some(left) = &mut state.left {
            let before = *left;
            *left = before.saturating_sub(u64::from(bytes));
            if before < u64::from(bytes) || end && *left > 0 {
                let why = "the body has not the length that content-length says";
                let behind = mem::replace(&mut self.expect, Expect::Header);
                let event = self.wrong(data.stream, Code::PROTOCOL_ERROR, why, now, out)?;
                self.expect = match behind {
                    Expect::Data(data) => Expect::Skip(data.left + data.padding),
                    behind => behind,
                };
                return Ok(event.map_or(Body::Nothing, Body::Wrong));
            }
        }
        if end {
            state.theirs_ended = true;
            self.close_ended(data.stream);
        }
        Ok(if len > 0 || end { Body::Part { stream: data.stream, end } } else { Body::Nothing })
    }

    /// Bytes of all streams are back as soon as they arrive, so that a stream whose application takes nothing stops no other one.
    fn return_credit(&mut self, len: u32, out: &mut Buf) {
        self.arrived += len;
        if self.arrived >= self.limits.connection_window.max(settings::FIRST_WINDOW) / 2 {
            let back = mem::take(&mut self.arrived);
            self.credit += back;
            put(kind::WINDOW_UPDATE, 0, 0, &back.to_be_bytes(), out);
        }
    }

    /// Whether this end has begun a stream with this number.
    const fn is_ours(&self, stream: u32) -> bool {
        stream < self.next_ours
    }

    /// Resets a stream whose peer broke a rule.
    fn wrong(&mut self, stream: u32, code: Code, why: impl Into<StreamFault>, now: Duration, out: &mut Buf) -> Step {
        let why = why.into();
        self.count_reset(now)?;
        let was_open = self.drop_stream(stream);
        self.streams.note_reset(stream);
        put(kind::RST_STREAM, 0, stream, &code.0.to_be_bytes(), out);
        Ok(Some(if was_open { Event::Reset { stream, code, why: Some(why) } } else { Event::Refused { stream, why } }))
    }

    /// A whole frame that is not DATA.
    fn frame(&mut self, header: FrameHeader, payload: &[u8], now: Duration, out: &mut Buf) -> Step {
        let FrameHeader { stream, .. } = header;
        match header.kind {
            kind::HEADERS => self.headers(header, payload, now, out),
            kind::CONTINUATION => {
                let Some(mut block) = self.block.take() else { return Ok(None) };
                block.bytes.extend_from_slice(payload);
                self.go_on(block, header.has(flag::END_HEADERS), now, out)
            }
            kind::PRIORITY => {
                self.count_idle(now)?;
                if payload.len() == 5 {
                    return self.depends(stream, payload, now, out);
                }
                self.wrong(stream, Code::FRAME_SIZE_ERROR, "a PRIORITY frame has not 5 bytes", now, out)
            }
            kind::RST_STREAM => {
                if self.is_idle(stream) {
                    return Err(Fault::protocol("an RST_STREAM frame for a stream that has not begun"));
                }
                self.count_reset(now)?;
                let code = Code(number(payload));
                Ok(self.drop_stream(stream).then_some(Event::Reset { stream, code, why: None }))
            }
            kind::SETTINGS if header.has(flag::ACK) => {
                self.streams.take_credit(self.unknown());
                if mem::replace(&mut self.is_acknowledged, true) {
                    self.count_idle(now)?;
                }
                Ok(None)
            }
            kind::SETTINGS => {
                self.count_idle(now)?;
                let before = self.peer.initial_window;
                self.peer.read(payload, self.role)?;
                self.has_settings = true;
                settings::acknowledge(out);
                let by = i64::from(self.peer.initial_window) - i64::from(before);
                self.streams.change_windows(by)?;
                Ok((by > 0).then_some(Event::Window { stream: None }))
            }
            kind::PING => {
                self.count_idle(now)?;
                let Some(bytes) = payload.first_chunk::<8>() else { return Ok(None) };
                if header.has(flag::ACK) {
                    return Ok(Some(Event::Pong(*bytes)));
                }
                put(kind::PING, flag::ACK, 0, bytes, out);
                Ok(None)
            }
            kind::GOAWAY => {
                if mem::replace(&mut self.peer_goes_away, true) {
                    self.count_idle(now)?;
                }
                let (last, code) = (number(payload) & 0x7fff_ffff, Code(number(&payload[4..])));
                Ok(Some(Event::GoAway { last, code }))
            }
            kind::PRIORITY_UPDATE => self.prioritized(number(payload) & 0x7fff_ffff, now).map(|()| None),
            _ => self.window_update(stream, number(payload) & 0x7fff_ffff, now, out),
        }
    }

    fn window_update(&mut self, stream: u32, more: u32, now: Duration, out: &mut Buf) -> Step {
        // An update that gives back bytes which were sent is no idle one, unless it does so one by one.
        match self.unreturned.checked_sub(u64::from(more)) {
            Some(rest) if more >= LEAST_UPDATE => self.unreturned = rest,
            _ => self.count_idle(now)?,
        }
        let more = i64::from(more);
        if stream == 0 {
            self.window += more;
            return match more {
                0 => Err(Fault::protocol("a WINDOW_UPDATE frame of nothing")),
                _ if self.window > MAX_WINDOW => Err(Fault::flow("the window of the connection is above 2^31 - 1")),
                _ => Ok(Some(Event::Window { stream: None })),
            };
        }
        if self.is_idle(stream) {
            return Err(Fault::protocol("a WINDOW_UPDATE frame for a stream that has not begun"));
        }
        let Some(state) = self.streams.get(stream) else { return Ok(None) };
        state.window += more;
        match more {
            0 => self.wrong(stream, Code::PROTOCOL_ERROR, "a WINDOW_UPDATE frame of nothing", now, out),
            _ if state.window > MAX_WINDOW => {
                self.wrong(stream, Code::FLOW_CONTROL_ERROR, "a stream's window is above 2^31 - 1", now, out)
            }
            _ => Ok(Some(Event::Window { stream: Some(stream) })),
        }
    }

    /// Whether a stream has not begun.
    const fn is_idle(&self, stream: u32) -> bool {
        if self.is_theirs(stream) { stream > self.last_theirs } else { !self.is_ours(stream) }
    }

    /// A stream may not depend on itself (RFC 7540, section 5.3.1). All else of these priorities is ignored.
    fn depends(&mut self, stream: u32, on: &[u8], now: Duration, out: &mut Buf) -> Step {
        if number(on) & 0x7fff_ffff == stream {
            return self.wrong(stream, Code::PROTOCOL_ERROR, ON_ITSELF, now, out);
        }
        Ok(None)
    }

    /// A PRIORITY_UPDATE frame for a stream (RFC 9218, section 7.1). The priority itself is ignored, whatever its text.
    fn prioritized(&mut self, stream: u32, now: Duration) -> Result<(), Fault> {
        self.count_idle(now)?;
        if self.role == Role::Client {
            return Err(Fault::protocol("a server sent a PRIORITY_UPDATE frame"));
        }
        if stream == 0 {
            return Err(Fault::protocol("a PRIORITY_UPDATE frame prioritizes no stream"));
        }
        if !self.is_idle(stream) {
            return Ok(());
        }
        if !self.is_theirs(stream) {
            return Err(Fault::protocol("a PRIORITY_UPDATE frame prioritizes a push that was not promised"));
        }
        let last = self.last_theirs;
        self.prioritized.retain(|other| *other > last);
        if !self.prioritized.contains(&stream) {
            self.prioritized.push(stream);
        }
        // Streams that have begun and streams that have not are together no more than the peer may open.
        if self.open as usize + self.prioritized.len() > self.limits.streams as usize {
            return Err(Fault::protocol("PRIORITY_UPDATE frames prioritize more streams than may be open"));
        }
        Ok(())
    }

    /// A HEADERS frame: the first of a field section.
    fn headers(&mut self, header: FrameHeader, payload: &[u8], now: Duration, out: &mut Buf) -> Step {
        let mut payload = payload;
        let mut padding = 0;
        if header.has(flag::PADDED) {
            let Some((&length, rest)) = payload.split_first() else {
                return Err(Fault::size("a padded HEADERS frame has no byte"));
            };
            (padding, payload) = (usize::from(length), rest);
        }
        let stream = header.stream;
        let mut on_itself = false;
        if header.has(flag::PRIORITY) {
            let Some((priority, rest)) = payload.split_at_checked(5) else {
                return Err(Fault::size("a HEADERS frame is too short for its priority"));
            };
            (on_itself, payload) = (number(priority) & 0x7fff_ffff == stream, rest);
        }
        let Some(len) = payload.len().checked_sub(padding) else {
            return Err(Fault::protocol("a HEADERS frame has more padding than bytes"));
        };
        let end = header.has(flag::END_STREAM);
        let is_open = self.streams.get(stream).is_some();
        let may_begin = self.role == Role::Server && self.is_theirs(stream);
        if !is_open && !may_begin && self.is_idle(stream) {
            return Err(Fault::protocol("a HEADERS frame has the number of a stream of the other side"));
        }
        let block = Box::new(Block { stream, end, on_itself, bytes: payload[..len].to_vec(), frames: 0 });
        self.go_on(block, header.has(flag::END_HEADERS), now, out)
    }

    /// The stream of a section that is refused has begun. GOAWAY names it, since a client would send the same once more otherwise.
    fn has_begun_by(&mut self, stream: u32) {
        if self.is_theirs(stream) {
            self.last_theirs = self.last_theirs.max(stream);
        }
    }

    /// A part of a field section has arrived.
    fn go_on(&mut self, mut block: Box<Block>, is_whole: bool, now: Duration, out: &mut Buf) -> Step {
        block.frames += 1;
        // Encoded fields are about as long as decoded ones, or shorter.
        if block.frames > self.limits.continuations || block.bytes.len() > 2 * self.limits.fields as usize {
            self.has_begun_by(block.stream);
            return Err(Fault::flood("a field section is larger than any that is taken"));
        }
        if !is_whole {
            self.block = Some(block);
            return Ok(None);
        }
        let fields = match self.decoder.decode(&block.bytes, &self.limits) {
            Ok(fields) => fields,
            Err(fault) => {
                self.has_begun_by(block.stream);
                return Err(fault);
            }
        };
        if block.on_itself {
            self.has_begun_by(block.stream);
            return self.wrong(block.stream, Code::PROTOCOL_ERROR, ON_ITSELF, now, out);
        }
        self.section_arrived(block.stream, block.end, &fields, now, out)
    }

    fn section_arrived(&mut self, stream: u32, end: bool, fields: &Fields, now: Duration, out: &mut Buf) -> Step {
        if let Some(state) = self.streams.get(stream) {
            return match (state.has_head, state.theirs_ended) {
                (_, true) => self.wrong(stream, Code::STREAM_CLOSED, "HEADERS behind the end of a stream", now, out),
                (true, false) => self.trailers(stream, end, fields, now, out),
                (false, false) => self.response(stream, end, fields, now, out),
            };
        }
        if self.role == Role::Client || stream <= self.last_theirs {
            if self.streams.was_reset(stream) || self.last_taken.is_some_and(|last| stream > last) {
                return self.count_idle(now).map(|()| None);
            }
            return Err(Fault { code: Code::STREAM_CLOSED, why: "HEADERS for a stream that has ended" });
        }
        self.last_theirs = stream;
        if self.last_taken.is_some() {
            // GOAWAY has told that it is not processed.
            self.streams.note_reset(stream);
            return self.count_idle(now).map(|()| None);
        }
        self.request_arrived(stream, end, fields, now, out)
    }

    fn request_arrived(&mut self, stream: u32, end: bool, fields: &Fields, now: Duration, out: &mut Buf) -> Step {
        if self.open >= self.limits.streams {
            return self.wrong(stream, Code::REFUSED_STREAM, StreamFault::Streams, now, out);
        }
        if fields.is_over {
            self.count_reset(now)?;
            // RFC 6585, section 5.
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            self.section(stream, true, out, |out| block::put(b":status", status.as_str().as_bytes(), out));
            if !end {
                self.streams.note_reset(stream);
                put(kind::RST_STREAM, 0, stream, &Code::NO_ERROR.0.to_be_bytes(), out);
            }
            return Ok(Some(Event::Refused { stream, why: StreamFault::Head }));
        }
        let head = match fields::request(fields, self.limits.websockets) {
            Ok(head) if end && head.length.is_some_and(|length| length > 0) => Err("a body is missing"),
            read => read,
        };
        match head {
            Ok(head) => {
                let length = head.length.filter(|_| head.request.method() != Method::CONNECT);
                self.streams.add(crate::stream::Stream {
                    has_head: true,
                    left: length,
                    ..self.stream(stream, false, end)
                });
                self.open += 1;
                Ok(Some(Event::Request { stream, head: Box::new(head), end }))
            }
            Err(why) => self.wrong(stream, Code::PROTOCOL_ERROR, why, now, out),
        }
    }

    fn response(&mut self, stream: u32, end: bool, fields: &Fields, now: Duration, out: &mut Buf) -> Step {
        if fields.is_over {
            return self.wrong(stream, Code::CANCEL, StreamFault::Head, now, out);
        }
        let head = match fields::response(fields) {
            Ok(head) if head.response.status().is_informational() && !end => return Ok(None),
            Ok(head) if head.response.status().is_informational() => Err("an informational response ends a stream"),
            read => read,
        };
        match head {
            Ok(head) => {
                if let Some(state) = self.streams.get(stream) {
                    state.has_head = true;
                    state.theirs_ended |= end;
                    // A response to HEAD has a length without a body: then the stream ends here.
                    state.left = head.length.filter(|_| !end);
                }
                self.close_ended(stream);
                Ok(Some(Event::Response { stream, head: Box::new(head), end }))
            }
            Err(why) => self.wrong(stream, Code::PROTOCOL_ERROR, why, now, out),
        }
    }

    fn trailers(&mut self, stream: u32, end: bool, fields: &Fields, now: Duration, out: &mut Buf) -> Step {
        let is_short = self.streams.get(stream).is_some_and(|state| state.left.is_some_and(|left| left > 0));
        let why = match fields::trailers(fields) {
            _ if !end => "a second field section does not end the stream",
            _ if is_short => "the body has not the length that content-length says",
            Err(why) => why,
            Ok(()) => {
                if let Some(state) = self.streams.get(stream) {
                    state.theirs_ended = true;
                }
                self.close_ended(stream);
                return Ok(Some(Event::End { stream }));
            }
        };
        self.wrong(stream, Code::PROTOCOL_ERROR, why, now, out)
    }
}

/// The result of bytes of a body.
enum Body {
    /// The caller gets them.
    Part { stream: u32, end: bool },
    /// There are none yet.
    Awaited,
    /// Nothing came of them.
    Nothing,
    /// They break a rule.
    Wrong(Event<'static>),
}

/// The number that a payload begins with.
fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().copied().map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests;
