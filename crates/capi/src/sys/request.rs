//! Answers to requests, at once or later.

use super::border::{code, free, report};
use super::callbacks::{Redial, Request};
use super::guard::guard;
use super::heads::{header_map, status, target};
use super::lent::{in_request, set_redial};
use super::memory::{bytes, check, give, text};
use super::owner::State;
use super::shapes::{Header, Target};
use super::sized;
use super::types::{ErrorDetail, TlsFacts};
use crate::codes::{Code, TAUT_ERR_CLOSED, TAUT_ERR_FULL, TAUT_ERR_STATE};
use crate::failure::Failure;
use core::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};
use tautline::http::Response;
use tautline::{Reply, Upgrade};

/// The right and the duty to answer one request later. Any thread may use it.
pub struct Ticket(Mutex<Option<tautline::Ticket<State>>>);

const ANSWERED: Failure = Failure::new(TAUT_ERR_STATE, "the request has an answer already");

/// Accepts the WebSocket that a request asks for.
///
/// The response gets these headers, and `subprotocol` if it is not null: one that the client offers. `conn_user` becomes the
/// program's pointer of the connection.
///
/// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_request_upgrade(
    request: *const Request,
    headers: *const Header,
    headers_count: usize,
    subprotocol: *const c_char,
    conn_user: *mut c_void,
) -> Code {
    let call = || {
        // SAFETY: the caller keeps the contract of `upgrade`.
        let upgrade = unsafe { upgrade((headers, headers_count), subprotocol, conn_user) }?;
        in_request(request, |_, reply| answer(reply, upgrade.into()))
    };
    code(guard(call))
}

/// Answers a request as plain HTTP.
///
/// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_request_respond(
    request: *const Request,
    http_status: u32,
    headers: *const Header,
    headers_count: usize,
    body: *const u8,
    body_len: usize,
) -> Code {
    let call = || {
        // SAFETY: the caller keeps the contract of `response`.
        let response = unsafe { response(http_status, (headers, headers_count), (body, body_len)) }?;
        in_request(request, |_, reply| answer(reply, Reply::Respond(response)))
    };
    code(guard(call))
}

/// Takes the right to answer a request later, from any thread, and sets `*ticket` to it. `taut_ticket_free` frees it.
///
/// Nothing more is read from the client meanwhile. After TAUT_SET_ANSWER_MS it gets status 408. TAUT_ERR_FULL says that
/// too many requests wait, and that this one is answered with status 503.
///
/// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_request_later(request: *const Request, ticket: *mut *mut Ticket) -> Code {
    let call = || {
        in_request(request, |request, reply| {
            let take = || {
                let mut taken = None;
                let later = request.later(|ticket| taken = Some(ticket));
                answer(reply, later)?;
                let full = Failure::new(TAUT_ERR_FULL, "too many requests wait for their answers");
                taken.map(|taken| Ticket(Mutex::new(Some(taken)))).ok_or(full)
            };
            // SAFETY: the caller gives null, or lets it be written.
            unsafe { give(ticket, take) }
        })
    };
    code(guard(call))
}

/// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
///
/// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_request_get_facts(request: *const Request, facts: *mut TlsFacts) -> Code {
    let call = || {
        in_request(request, |request, _| {
            // SAFETY: the caller gives null or a `taut_tls_facts`.
            unsafe { sized::write(facts, &TlsFacts::new(request.tls.clone())) }
        })
    };
    code(guard(call))
}

/// 1 if the client still waits, else 0. It may leave, or the time may be over, at any moment.
///
/// Any thread may call this at any time.
///
/// # Safety
/// `ticket` is null or a ticket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ticket_is_wanted(ticket: *const Ticket) -> u32 {
    // SAFETY: the caller gives null or a ticket.
    let Some(ticket) = (unsafe { ticket.as_ref() }) else { return 0 };
    let waits = ticket.0.lock().unwrap_or_else(PoisonError::into_inner);
    waits.as_ref().is_some_and(tautline::Ticket::is_wanted).into()
}

/// Accepts the WebSocket, as `taut_request_upgrade` does. TAUT_ERR_CLOSED says that nobody waits any more.
///
/// Any thread may call this at any time. The ticket is used up, and still to be freed.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ticket_upgrade(
    ticket: *const Ticket,
    headers: *const Header,
    headers_count: usize,
    subprotocol: *const c_char,
    conn_user: *mut c_void,
) -> Code {
    let call = || {
        // SAFETY: the caller keeps the contract of `upgrade`.
        let upgrade = unsafe { upgrade((headers, headers_count), subprotocol, conn_user) }?;
        // SAFETY: the caller gives null or a ticket.
        unsafe { take(ticket) }?.upgrade(upgrade).map_err(|_| UNWANTED)
    };
    code(guard(call))
}

/// Answers as plain HTTP, as `taut_request_respond` does. TAUT_ERR_CLOSED says that nobody waits any more.
///
/// Any thread may call this at any time. The ticket is used up, and still to be freed.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ticket_respond(
    ticket: *const Ticket,
    http_status: u32,
    headers: *const Header,
    headers_count: usize,
    body: *const u8,
    body_len: usize,
) -> Code {
    let call = || {
        // SAFETY: the caller keeps the contract of `response`.
        let response = unsafe { response(http_status, (headers, headers_count), (body, body_len)) }?;
        // SAFETY: the caller gives null or a ticket.
        unsafe { take(ticket) }?.respond(response).map_err(|_| UNWANTED)
    };
    code(guard(call))
}

/// Frees a ticket; null is ignored. A request that has no answer gets status 500.
///
/// Any thread may call this, once and as the last call.
///
/// # Safety
/// `ticket` is null or a ticket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ticket_free(ticket: *mut Ticket) {
    // SAFETY: the caller gives null, or a ticket for the last time.
    let _ = unsafe { free(ticket) };
}

/// Replaces the target that a client is about to connect to again: a new token in a header, another URI.
///
/// Only inside the callback `redial`; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_redial_set(redial: *mut Redial, to: *const Target, error: *mut ErrorDetail) -> Code {
    let set = || {
        check(redial)?;
        // SAFETY: the caller gives null or a `taut_target`, whose pointers are valid.
        set_redial(unsafe { target(to) }?)
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, set) }
}

const UNWANTED: Failure = Failure::new(TAUT_ERR_CLOSED, "nobody waits for the answer any more");

fn answer(reply: &mut Option<Reply<State>>, new: Reply<State>) -> Result<(), Failure> {
    if reply.is_some() {
        return Err(ANSWERED);
    }
    *reply = Some(new);
    Ok(())
}

/// The right to answer that a ticket holds.
///
/// # Safety
/// `ticket` is null or a ticket.
unsafe fn take(ticket: *const Ticket) -> Result<tautline::Ticket<State>, Failure> {
    check(ticket)?;
    // SAFETY: not null, so it is a ticket.
    let ticket = unsafe { &*ticket };
    ticket.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or(ANSWERED)
}

/// The terms of an upgrade.
///
/// # Safety
/// The pointers are null or valid.
unsafe fn upgrade(
    (headers, count): (*const Header, usize),
    subprotocol: *const c_char,
    conn_user: *mut c_void,
) -> Result<Upgrade<State>, Failure> {
    let mut upgrade = Upgrade::new().with_state(State::with_user(conn_user));
    // SAFETY: the caller gives an array of headers.
    upgrade.headers = unsafe { header_map(headers, count) }?;
    // SAFETY: the caller gives null or a text.
    upgrade.subprotocol = unsafe { text(subprotocol) }?.map(str::to_owned);
    Ok(upgrade)
}

/// A plain response.
///
/// # Safety
/// The pointers are null or valid.
unsafe fn response(
    http_status: u32,
    (headers, count): (*const Header, usize),
    (body, len): (*const u8, usize),
) -> Result<Response<Vec<u8>>, Failure> {
    // SAFETY: the caller gives bytes that can be read.
    let mut response = Response::new(unsafe { bytes(body, len) }?.to_vec());
    *response.status_mut() = status(http_status)?;
    // SAFETY: the caller gives an array of headers.
    *response.headers_mut() = unsafe { header_map(headers, count) }?;
    Ok(response)
}
