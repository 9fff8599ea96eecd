//! Heads of HTTP, openings and ends, as the structs of the interface.

use super::memory::{array, slice, text};
use super::shapes::{Closed, Head, Header, Opening};
use super::sized;
use super::types::Slice;
use crate::codes::TAUT_ERR_VALUE;
use crate::ends;
use crate::failure::Failure;
use core::ptr::{from_ref, null};
use tautline::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use tautline::layers::engine::connection::Opened;
use tautline::{ConnectError, Target};

impl Slice {
    pub(super) const EMPTY: Self = Self { data: null(), len: 0 };
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }
}

impl From<&str> for Slice {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

/// A head with the array that it points to. It points into the request or response, too.
pub(super) struct HeadView {
    pub(super) head: Head,
    _headers: Vec<Header>,
}

impl HeadView {
    fn new(method: Slice, target: Slice, status: u32, headers: &HeaderMap) -> Self {
        let all =
            headers.iter().map(|(name, value)| Header { name: name.as_str().into(), value: value.as_bytes().into() });
        let headers: Vec<Header> = all.collect();
        let (array, headers_count) = (headers.as_ptr(), headers.len());
        let head = Head { size: size_of::<Head>(), method, target, status, headers: array, headers_count };
        Self { head, _headers: headers }
    }

    pub(super) fn of_request<B>(request: &Request<B>) -> Self {
        let target = request.uri().path_and_query().map_or(Slice::EMPTY, |target| target.as_str().into());
        Self::new(request.method().as_str().into(), target, 0, request.headers())
    }

    pub(super) fn of_response<B>(response: &Response<B>) -> Self {
        Self::new(Slice::EMPTY, Slice::EMPTY, u32::from(response.status().as_u16()), response.headers())
    }
}

/// A struct of the interface with all that it points to.
pub(super) struct Held<T> {
    pub(super) shape: T,
    _owned: Box<dyn core::any::Any + Send>,
    _views: [Option<Box<HeadView>>; 2],
}

// SAFETY: the pointers in the struct and in the views point into memory that it owns, and nothing changes that memory.
unsafe impl<T> Send for Held<T> {}

fn pointer(view: Option<&HeadView>) -> *const Head {
    view.map_or(null(), |view| from_ref(&view.head))
}

impl Held<Opening> {
    /// Takes an opening.
    pub(super) fn opening(opened: Box<Opened>) -> Box<Self> {
        let request = opened.request.as_ref().map(|request| Box::new(HeadView::of_request(request)));
        let response = opened.response.as_ref().map(|response| Box::new(HeadView::of_response(response)));
        let shape = opening(
            [request.as_deref(), response.as_deref()],
            opened.subprotocol.as_deref().unwrap_or_default(),
            opened.deflate,
        );
        Box::new(Self { shape, _owned: opened, _views: [request, response] })
    }
}

/// An opening that points to these.
pub(super) fn opening([request, response]: [Option<&HeadView>; 2], subprotocol: &str, deflate: bool) -> Opening {
    Opening {
        size: size_of::<Opening>(),
        request: pointer(request),
        response: pointer(response),
        subprotocol: subprotocol.into(),
        deflate: deflate.into(),
    }
}

impl Held<Head> {
    /// Takes a copy of a request.
    pub(super) fn request(request: &Request<()>) -> Box<Self> {
        let owned = Box::new(request.clone());
        let view = Box::new(HeadView::of_request(&owned));
        let Head { size, method, target, status, headers, headers_count } = view.head;
        let shape = Head { size, method, target, status, headers, headers_count };
        Box::new(Self { shape, _owned: owned, _views: [Some(view), None] })
    }
}

impl Held<Closed> {
    /// Takes the end of an open connection.
    pub(super) fn closed(closed: &tautline::Closed) -> Box<Self> {
        let owned = Box::new((closed.reason.clone(), format!("{:#}", closed.cause)));
        let shape = Closed {
            size: size_of::<Closed>(),
            cause: ends::cause(&closed.cause),
            code: u32::from(closed.code.get()),
            reason: owned.0.as_str().into(),
            text: owned.1.as_str().into(),
            response: null(),
        };
        Box::new(Self { shape, _owned: owned, _views: [None, None] })
    }

    /// Takes the end of an attempt.
    pub(super) fn failed(error: &ConnectError) -> Box<Self> {
        let owned = Box::new((error.clone(), format!("{error:#}")));
        let view = owned.0.refusal().map(|response| Box::new(HeadView::of_response(response)));
        let shape = Closed {
            size: size_of::<Closed>(),
            cause: ends::cause_of_failure(error),
            code: 1006,
            reason: Slice::EMPTY,
            text: owned.1.as_str().into(),
            response: pointer(view.as_deref()),
        };
        Box::new(Self { shape, _owned: owned, _views: [view, None] })
    }
}

/// The headers that a caller gives.
///
/// # Safety
/// `headers` is null, or an array of `count` headers that can be read.
pub(super) unsafe fn header_map(headers: *const Header, count: usize) -> Result<HeaderMap, Failure> {
    let unusable = || Failure::new(TAUT_ERR_VALUE, "a header's name or value has bytes that HTTP does not permit");
    let mut map = HeaderMap::new();
    // SAFETY: the caller gives an array that can be read.
    for header in unsafe { array(headers, count) }? {
        // SAFETY: the caller gives slices that can be read.
        let name = HeaderName::from_bytes(unsafe { slice(&header.name) }?).map_err(|_| unusable())?;
        // SAFETY: as above.
        let value = HeaderValue::from_bytes(unsafe { slice(&header.value) }?).map_err(|_| unusable())?;
        map.try_append(name, value).map_err(|_| Failure::new(TAUT_ERR_VALUE, "there are too many headers"))?;
    }
    Ok(map)
}

/// The status that a caller gives.
pub(super) fn status(number: u32) -> Result<StatusCode, Failure> {
    let status = u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
    status.ok_or(Failure::new(TAUT_ERR_VALUE, "an HTTP status is a number from 100 to 999"))
}

/// Texts of which a caller gives an array.
///
/// # Safety
/// `texts` is null, or an array of `count` slices that can be read.
pub(super) unsafe fn texts(texts: *const Slice, count: usize) -> Result<Vec<String>, Failure> {
    // SAFETY: the caller gives an array that can be read.
    let texts = unsafe { array(texts, count) }?;
    let owned = |text: &Slice| {
        // SAFETY: the caller gives slices that can be read.
        let bytes = unsafe { slice(text) }?;
        String::from_utf8(bytes.to_vec()).map_err(|_| Failure::new(TAUT_ERR_VALUE, "a text is not UTF-8"))
    };
    texts.iter().map(owned).collect()
}

/// The target that a caller gives.
///
/// # Safety
/// `target` is null or a `taut_target`, whose pointers are null or valid.
pub(super) unsafe fn target(target: *const super::shapes::Target) -> Result<Target, Failure> {
    let value = |why: String| Failure::with_text(TAUT_ERR_VALUE, why);
    // SAFETY: the caller gives null or a struct that can be read.
    let given = unsafe { sized::read(target) }?;
    // SAFETY: the caller gives null or a text.
    let [uri, address, origin, proxy, server_name] =
        [given.uri, given.address, given.origin, given.proxy, given.server_name].map(|part| unsafe { text(part) });
    let uri = uri?.ok_or(Failure::new(TAUT_ERR_VALUE, "a target needs a uri"))?;
    let mut target = Target::new(uri).map_err(|error| value(error.to_string()))?;
    if let Some(address) = address? {
        target.address = Some(address.parse().map_err(|error| value(format!("{address:?} is no address: {error}")))?);
    }
    target.origin = origin?.map(str::to_owned);
    target.server_name = server_name?.map(str::to_owned);
    if let Some(proxy) = proxy? {
        target.proxy = Some(proxy.parse().map_err(|error| value(format!("the proxy cannot be used: {error}")))?);
    }
    // SAFETY: the caller gives an array of headers.
    target.headers = unsafe { header_map(given.headers, given.headers_count) }?;
    // SAFETY: the caller gives an array of slices.
    target.subprotocols = unsafe { texts(given.subprotocols, given.subprotocols_count) }?;
    target.deflate = (given.deflate != 0).then(Default::default);
    target.reconnect =
        ends::reconnect([given.reconnect_first_ms, given.reconnect_longest_ms], given.reconnect_attempts);
    target.check().map_err(|error| value(error.to_string()))?;
    Ok(target)
}
