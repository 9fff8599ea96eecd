use super::border::{code, describe, free_exclusive, put_text, report};
use super::exclusive::{Entered, Exclusive};
use super::memory::{array, bytes, check, give, overlap, room, slice, span, text, window};
use super::sized;
use super::types::{ErrorDetail, Slice, TlsConfig, TlsCounters, TlsFacts, TlsIo, TlsSession};
use super::vectors::clear_upper_halves;
use crate::codes::{Code, TAUT_ERR_OVERLAP, TAUT_ERR_SIZE, TAUT_ERR_VALUE};
use crate::failure::Failure;
use crate::tls::{Counters, Done, Report, Tls, Windows};
use core::ffi::c_char;
use core::mem::MaybeUninit;
use core::ptr;
use tautline_tls::TlsInfo;

/// Slices of which data is sealed without an allocation.
const SLICES: usize = 64;

/// Makes a session and sets `*tls` to it. `taut_tls_free` frees it.
///
/// `host` is the name or address that a client connects to, which the server's certificate must have; null for servers.
///
/// Any thread that holds a reference of the configuration may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_new(
    config: *const TlsConfig,
    host: *const c_char,
    tls: *mut *mut TlsSession,
    error: *mut ErrorDetail,
) -> Code {
    let made = || {
        check(config)?;
        // SAFETY: the caller gives null or a text.
        let host = unsafe { text(host) }?;
        // SAFETY: not null, so it is a configuration, and the caller holds a reference.
        let session = unsafe { &*config }.0.session(host)?;
        Ok(TlsSession(Exclusive::new(Tls::new(session))))
    };
    // SAFETY: the caller gives null, or lets it be written.
    let make = || unsafe { give(tls, made) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, make) }
}

/// Frees a session; null is ignored. If another call uses it, nothing is freed and the result is TAUT_ERR_BUSY.
///
/// Any thread may call this, once and as the last call.
///
/// # Safety
/// `tls` is null or a session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_free(tls: *mut TlsSession) -> Code {
    // SAFETY: the caller gives null, or a session for the last time.
    unsafe { free_exclusive(tls, |tls| &tls.0) }
}

/// Advances the handshake over `in` and `out`. A client's first call needs no input.
///
/// TAUT_WANT_READ asks for more bytes of the peer, TAUT_WANT_NONE says that the handshake is complete. Bytes behind
/// `taken` then belong to `taut_tls_open`.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the windows are the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_handshake(tls: *mut TlsSession, io: *mut TlsIo) -> Code {
    let call = |tls: &mut Tls, io: &mut TlsIo| {
        if overlap(span(&io.r#in), span(&io.out)) {
            return Err(OVERLAP);
        }
        // SAFETY: the caller gives the windows away for this call, and they share no byte.
        let wire = unsafe { window(&io.r#in) }?;
        // SAFETY: as above.
        Ok(io.report(tls.handshake(wire, unsafe { window(&io.out) }?)))
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(tls, io, call) }
}

/// Opens whole records at the front of `in`. Their plaintext goes to `plain`, as much as it has room for.
///
/// If `plain` is exactly the memory of `in`, plaintext stays there, at `plain_offset`. Alerts, key updates and other
/// answers that a record causes go to `out`. TAUT_WANT_READ says that all whole records were opened.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the windows are the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_open(tls: *mut TlsSession, io: *mut TlsIo) -> Code {
    let call = |tls: &mut Tls, io: &mut TlsIo| {
        let (wire, plain, out) = (span(&io.r#in), span(&io.plain), span(&io.out));
        let in_place = wire == plain;
        let share = overlap(wire, out) || (!in_place && (overlap(wire, plain) || overlap(plain, out)));
        if share {
            return Err(OVERLAP);
        }
        // SAFETY: the caller gives the windows away for this call. `plain` is left out where it is the memory of
        // `in`, and the others share no byte.
        let wire = unsafe { window(&io.r#in) }?;
        // SAFETY: as above.
        let out = unsafe { window(&io.out) }?;
        // SAFETY: as above.
        let plain = if in_place { None } else { Some(unsafe { window(&io.plain) }?) };
        Ok(tls.open(Windows { wire, plain, out, most: most(io) }, io))
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(tls, io, call) }
}

/// Seals `data` into `out`, in as few records as possible.
///
/// If `out` has no room for all of it, `taken` bytes are sealed and the result wants TAUT_WANT_WRITE: send `out`, then
/// call again with the others.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the windows are the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_seal(tls: *mut TlsSession, io: *mut TlsIo) -> Code {
    let call = |tls: &mut Tls, io: &mut TlsIo| {
        // SAFETY: the caller gives an array of slices that can be read.
        let data = unsafe { array(io.data, io.data_count) }?;
        if data.iter().any(|slice| overlap((slice.data, slice.len), span(&io.out))) {
            return Err(OVERLAP);
        }
        // SAFETY: the caller gives the window away for this call, and no slice shares a byte with it.
        let out = unsafe { window(&io.out) }?;
        match data {
            // SAFETY: the caller gives slices that can be read.
            [single] => Ok(tls.seal(unsafe { slice(single) }?, out, io)),
            // SAFETY: as above.
            several => unsafe { seal_several(tls, several, out) }.map(|done| io.report(done)),
        }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(tls, io, call) }
}

/// Opens records as `taut_tls_open` does, with `in` and `plain` as arguments: those of `io` are not read.
///
/// Runtimes with a heap of their own, such as Java's, can lend memory of it only as an argument. `plain` must not overlap
/// `in`: nothing is opened in place.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the windows are the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_open_into(
    tls: *mut TlsSession,
    r#in: *mut u8,
    in_len: usize,
    plain: *mut u8,
    plain_len: usize,
    io: *mut TlsIo,
) -> Code {
    clear_upper_halves();
    let call = |tls: &mut Tls, io: &mut TlsIo| {
        let (wire, into, out) = ((r#in.cast_const(), in_len), (plain.cast_const(), plain_len), span(&io.out));
        if overlap(wire, into) || overlap(wire, out) || overlap(into, out) {
            return Err(OVERLAP);
        }
        // SAFETY: the caller gives the windows away for this call, and they share no byte.
        let wire = unsafe { room(r#in, in_len) }?;
        // SAFETY: as above.
        let plain = Some(unsafe { room(plain, plain_len) }?);
        // SAFETY: as above.
        let out = unsafe { window(&io.out) }?;
        Ok(tls.open(Windows { wire, plain, out, most: most(io) }, io))
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(tls, io, call) }
}

/// Seals one piece of data as `taut_tls_seal` does, with `data` and `out` as arguments: those of `io` are not read.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the memory is the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_seal_into(
    tls: *mut TlsSession,
    data: *const u8,
    data_len: usize,
    out: *mut u8,
    out_len: usize,
    io: *mut TlsIo,
) -> Code {
    clear_upper_halves();
    let call = |tls: &mut Tls, io: &mut TlsIo| {
        if overlap((data, data_len), (out, out_len)) {
            return Err(OVERLAP);
        }
        // SAFETY: the caller lets the data be read during this call.
        let data = unsafe { bytes(data, data_len) }?;
        // SAFETY: the caller gives the window away for this call, and the data shares no byte with it.
        Ok(tls.seal(data, unsafe { room(out, out_len) }?, io))
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(tls, io, call) }
}

/// Writes close_notify to `out`, once. Nothing can be sealed afterwards, but records can be opened.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the windows are the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_close(tls: *mut TlsSession, io: *mut TlsIo) -> Code {
    // SAFETY: the caller gives the window away for this call.
    let call = |tls: &mut Tls, io: &mut TlsIo| Ok(io.report(tls.close(unsafe { window(&io.out) }?)));
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(tls, io, call) }
}

/// Writes a KeyUpdate to `out`, and seals with new keys from then on (TLS 1.3). `ask` is 1 to have the peer do so too.
///
/// No call is needed for security: keys change long before their limit. Some engines have no such call, and answer
/// TAUT_ERR_STATE.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the windows are the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_key_update(tls: *mut TlsSession, ask: u32, io: *mut TlsIo) -> Code {
    let call = |tls: &mut Tls, io: &mut TlsIo| {
        // SAFETY: the caller gives the window away for this call.
        Ok(io.report(tls.update_keys(ask != 0, unsafe { window(&io.out) }?)))
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(tls, io, call) }
}

/// Writes the error that ended the session into `error`; TAUT_OK if the session lives.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_error(tls: *mut TlsSession, error: *mut ErrorDetail) -> Code {
    let call = |tls: &mut Tls| {
        // SAFETY: the caller gives null or a `taut_error`.
        let given = unsafe { sized::read(error.cast_const()) }?;
        // SAFETY: as above, and it begins with its size.
        unsafe { describe(error, given, tls.failure()) }
    };
    // SAFETY: the caller keeps the contract of `enter`.
    unsafe { enter(tls, call) }
}

/// Writes the result of the handshake into `facts`.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_get_facts(tls: *mut TlsSession, facts: *mut TlsFacts) -> Code {
    let call = |tls: &mut Tls| {
        // SAFETY: the caller gives null or a `taut_tls_facts`.
        unsafe { sized::write(facts, &TlsFacts::new(tls.info())) }
    };
    // SAFETY: the caller keeps the contract of `enter`.
    unsafe { enter(tls, call) }
}

/// Copies a certificate of the peer (DER, number 0 is the end entity) into `der`, and sets `*der_len` to its length.
///
/// If `der_room` is smaller than that, nothing is copied and the result is TAUT_ERR_SIZE.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_peer_certificate(
    tls: *mut TlsSession,
    number: usize,
    der: *mut u8,
    der_room: usize,
    der_len: *mut usize,
) -> Code {
    // SAFETY: the caller keeps the contract of `certificate`.
    let call = |tls: &mut Tls| unsafe { certificate(&tls.info(), number, (der, der_room), der_len) };
    // SAFETY: the caller keeps the contract of `enter`.
    unsafe { enter(tls, call) }
}

/// Fills `out` with keying material of the connection (RFC 8446, section 7.5), for TLS 1.3.
///
/// The configuration needs TAUT_OPTION_EXPORTER. Both ends get the same bytes for the same label and context.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid, and the memory is the caller's during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_export(
    tls: *mut TlsSession,
    label: *const u8,
    label_len: usize,
    context: *const u8,
    context_len: usize,
    out: *mut u8,
    out_len: usize,
) -> Code {
    let call = |tls: &mut Tls| {
        if [(label, label_len), (context, context_len)].into_iter().any(|part| overlap(part, (out, out_len))) {
            return Err(OVERLAP);
        }
        // SAFETY: the caller gives bytes that can be read.
        let label = unsafe { bytes(label, label_len) }?;
        // SAFETY: as above.
        let context = unsafe { bytes(context, context_len) }?;
        // SAFETY: the caller gives the memory away for this call, and it shares no byte with the others.
        tls.export(label, context, unsafe { room(out, out_len) }?)
    };
    // SAFETY: the caller keeps the contract of `enter`.
    unsafe { enter(tls, call) }
}

/// Writes into `counters` how often a window was too small.
///
/// Any thread may call this, but no two threads at once for one session.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_tls_get_counters(tls: *mut TlsSession, counters: *mut TlsCounters) -> Code {
    let call = |tls: &mut Tls| {
        let Counters { spills, carries } = tls.counters;
        // SAFETY: the caller gives null or a `taut_tls_counters`.
        unsafe { sized::write(counters, &TlsCounters { size: size_of::<TlsCounters>(), spills, carries }) }
    };
    // SAFETY: the caller keeps the contract of `enter`.
    unsafe { enter(tls, call) }
}

impl TlsFacts {
    /// The facts, in room of fixed lengths.
    pub(super) fn new(info: TlsInfo) -> Self {
        let mut facts = sized::zeroed::<Self>();
        put_text(&mut facts.version, &shown(info.version));
        put_text(&mut facts.suite, &shown(info.suite));
        put_text(&mut facts.group, &shown(info.group));
        put_text(&mut facts.server_name, info.server_name.as_deref().unwrap_or_default());
        let alpn = info.alpn.unwrap_or_default();
        facts.alpn_len = alpn.len().min(facts.alpn.len());
        facts.alpn[..facts.alpn_len].copy_from_slice(&alpn[..facts.alpn_len]);
        facts.peer_certificates = info.peer_certificates.len();
        facts.resumed = info.resumed.into();
        facts
    }
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Copies a certificate of the peer into `der`, and sets `*der_len` to its length.
///
/// # Safety
/// The pointers are null or valid.
pub(super) unsafe fn certificate(
    info: &TlsInfo,
    number: usize,
    (der, der_room): (*mut u8, usize),
    der_len: *mut usize,
) -> Result<(), Failure> {
    check(der_len)?;
    let certificate = info.peer_certificates.get(number);
    let certificate = certificate.ok_or(Failure::new(TAUT_ERR_VALUE, "the peer showed no such certificate"))?;
    // SAFETY: not null, and the caller lets it be written.
    unsafe { der_len.write(certificate.len()) };
    // SAFETY: the caller gives the memory away for this call.
    let der = unsafe { room(der, der_room) }?;
    let der = der.get_mut(..certificate.len());
    der.ok_or(Failure::new(TAUT_ERR_SIZE, "the certificate is longer"))?.copy_from_slice(certificate);
    Ok(())
}

const OVERLAP: Failure = Failure::new(TAUT_ERR_OVERLAP, "two windows overlap");

/// Runs an operation over windows, and writes its result into `io`, also after an error.
///
/// # Safety
/// `tls` is null or a session, `io` is null or a `taut_tls_io` outside its own windows.
#[inline]
unsafe fn run(
    tls: *mut TlsSession,
    io: *mut TlsIo,
    operation: impl FnOnce(&mut Tls, &mut TlsIo) -> Result<Code, Failure>,
) -> Code {
    // SAFETY: the caller gives null or a `taut_tls_io`.
    let size = match unsafe { sized::size(io.cast_const()) } {
        Ok(size) => size,
        Err(failure) => return failure.code,
    };
    let mut copy = MaybeUninit::uninit();
    let given = io;
    let io = if size == size_of::<TlsIo>() {
        io
    } else {
        // SAFETY: as above.
        match unsafe { sized::read(io.cast_const()) } {
            Ok(whole) => ptr::from_mut(copy.write(whole)),
            Err(failure) => return failure.code,
        }
    };
    // SAFETY: not null, of this size, and the caller gives it away for this call.
    let results = unsafe { &mut *io };
    let failed = |failure: Failure, waiting| Done { code: failure.code, waiting, ..Done::default() };
    // SAFETY: the caller gives null or a session.
    let code = match unsafe { entered(tls) } {
        Ok(mut entered) => match entered.run(|tls| operation(tls, results)) {
            Ok(code) => code,
            Err(failure) => results.report(failed(failure, entered.value.waiting())),
        },
        Err(failure) => results.report(failed(failure, (0, 0))),
    };
    if io != given {
        // SAFETY: the caller's struct has another size, which was checked, and no reference to it exists.
        let written = unsafe { sized::write(given, results) };
        debug_assert!(written.is_ok(), "its size was checked");
    }
    code
}

impl Report for TlsIo {
    #[inline(always)]
    fn report(&mut self, done: Done) -> Code {
        (self.taken, self.written, self.records, self.want) = (done.taken, done.written, done.records, done.want);
        (self.plain_offset, self.plain_len) = done.plain;
        (self.plain_waiting, self.out_waiting) = done.waiting;
        done.code
    }
}

/// Seals several slices, or none, as one stream.
///
/// # Safety
/// The slices can be read, and share no byte with `out`.
#[inline(never)]
unsafe fn seal_several(tls: &mut Tls, several: &[Slice], out: &mut [u8]) -> Result<Done, Failure> {
    if several.len() > SLICES {
        // SAFETY: the caller keeps the contract.
        let slices = several.iter().map(|one| unsafe { slice(one) });
        return Ok(tls.seal_slices(checked(&slices.collect::<Result<Vec<_>, _>>()?)?, out));
    }
    let mut slices: [&[u8]; SLICES] = [&[]; SLICES];
    for (place, one) in slices.iter_mut().zip(several) {
        // SAFETY: as above.
        *place = unsafe { slice(one) }?;
    }
    Ok(tls.seal_slices(checked(&slices[..several.len()])?, out))
}

/// Runs a call without windows.
///
/// # Safety
/// `tls` is null or a session.
unsafe fn enter(tls: *mut TlsSession, call: impl FnOnce(&mut Tls) -> Result<(), Failure>) -> Code {
    // SAFETY: the caller gives null or a session.
    code(unsafe { entered(tls) }.and_then(|mut entered| entered.run(call)))
}

/// Begins a call on a session.
///
/// # Safety
/// `tls` is null, or a session that nothing frees during `'s`.
#[inline]
unsafe fn entered<'s>(tls: *mut TlsSession) -> Result<Entered<'s, Tls>, Failure> {
    check(tls)?;
    // SAFETY: not null, so it is a session that lives during `'s`. No exclusive reference to all of it exists.
    unsafe { &*tls }.0.enter()
}

/// Most records that a call opens.
#[inline]
const fn most(io: &TlsIo) -> usize {
    if io.max_records == 0 { usize::MAX } else { io.max_records }
}

/// Checks that the lengths of slices can be added up.
fn checked<'a, 'b>(slices: &'a [&'b [u8]]) -> Result<&'a [&'b [u8]], Failure> {
    let len = slices.iter().try_fold(0_usize, |len, slice| len.checked_add(slice.len()));
    match len {
        Some(len) if len <= isize::MAX as usize => Ok(slices),
        _ => Err(Failure::new(TAUT_ERR_SIZE, "the slices are too long together")),
    }
}
