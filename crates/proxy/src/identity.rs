//! The identifiers of a request: `X-Request-Id`, and `traceparent` (W3C Trace Context, level 1).

use crate::plan::Plan;
use tautline::http::{HeaderMap, HeaderName, HeaderValue};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// Most bytes of an identifier of another proxy.
const MOST: usize = 128;
/// Random bytes that are fetched at once.
const POOL: usize = 512;

/// Random numbers of a loop.
#[derive(Debug)]
pub(crate) struct Random {
    pool: Box<[u8; POOL]>,
    used: usize,
}

impl Default for Random {
    fn default() -> Self {
        Self { pool: Box::new([0; POOL]), used: POOL }
    }
}

impl Random {
    /// Random bytes in lower-case hex; `None` if the system has none.
    fn hex(&mut self, bytes: usize) -> Option<String> {
        if self.used + bytes > POOL {
            getrandom::fill(&mut self.pool[..]).ok()?;
            self.used = 0;
        }
        let drawn = self.pool.get(self.used..self.used + bytes)?;
        self.used += bytes;
        Some(drawn.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The identifiers of a request, as its server is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `X-Request-Id`.
    pub(crate) request: Option<String>,
    /// The trace's identifier in `traceparent`.
    pub(crate) trace: Option<String>,
}

/// Sets the identifiers of a request. Only a proxy that is trusted has given it one.
pub(crate) fn identify(plan: &Plan, headers: &mut HeaderMap, is_trusted: bool, random: &mut Random) -> Identity {
    let request = if plan.request_id { request_id(headers, is_trusted, random) } else { None };
    if plan.traceparent && trace_of(headers).is_none() {
        // A parent without a meaning has no state either.
        headers.remove(TRACESTATE);
        headers.remove(TRACEPARENT);
        let parent = random.hex(16).zip(random.hex(8)).map(|(trace, span)| format!("00-{trace}-{span}-01"));
        if let Some(parent) = parent.and_then(|parent| HeaderValue::try_from(parent).ok()) {
            headers.insert(TRACEPARENT, parent);
        }
    }
    Identity { request, trace: trace_of(headers).map(str::to_owned) }
}

fn request_id(headers: &mut HeaderMap, is_trusted: bool, random: &mut Random) -> Option<String> {
    let told = only(headers, &REQUEST_ID).filter(|id| is_trusted && is_identifier(id)).map(str::to_owned);
    // Servers that have fields as variables take a name with underscores for the same one.
    let alike = headers.keys().filter(|name| name.as_str().replace('_', "-") == REQUEST_ID.as_str());
    let alike: Vec<HeaderName> = alike.cloned().collect();
    alike.iter().for_each(|name| _ = headers.remove(name));
    let id = told.or_else(|| random.hex(16))?;
    headers.insert(REQUEST_ID, HeaderValue::try_from(&id).ok()?);
    Some(id)
}

/// The value of a field, if it is there once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())?.to_str().ok()
}

/// Whether an identifier is short, and has no character that a log or a program would have to escape.
fn is_identifier(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/=+@~".contains(&byte);
    (1..=MOST).contains(&id.len()) && id.bytes().all(is_plain)
}

/// The trace's identifier in `traceparent`, if that is one.
fn trace_of(headers: &HeaderMap) -> Option<&str> {
    let parent = only(headers, &TRACEPARENT)?;
    let mut parts = parent.split('-');
    let mut part = |len| parts.next().filter(|part| part.len() == len && part.bytes().all(is_hex));
    let (version, trace, span, _flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    let has_more = parts.next().is_some();
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    let is_wrong = version == "ff" || (version == "00" && has_more) || is_zero(trace) || is_zero(span);
    (!is_wrong).then_some(trace)
}

const fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn plan(request_id: bool, traceparent: bool) -> Plan {
        Plan { request_id, traceparent, ..Plan::default() }
    }

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), value.parse().unwrap());
        let mut headers = HeaderMap::new();
        fields.iter().map(pair).for_each(|(name, value)| _ = headers.append(name, value));
        headers
    }

    #[test]
    fn only_a_trusted_proxy_names_a_request() {
        let mut random = Random::default();
        let mut made = Vec::new();
        for (fields, is_trusted) in [
            (&[("x-request-id", "forged")][..], false),
            (&[("x_request_id", "forged"), ("x-request_id", "forged")], true),
            (&[("x-request-id", "one"), ("x-request-id", "two")], true),
            (&[("x-request-id", "a\"b")], true),
            (&[("x-request-id", "")], true),
            (&[], true),
        ] {
            let mut fields = headers(fields);
            let id = identify(&plan(true, false), &mut fields, is_trusted, &mut random).request.unwrap();
            assert!(id.len() == 32 && id.bytes().all(is_hex), "{id}");
            assert_eq!((fields.len(), fields["x-request-id"].to_str().unwrap()), (1, id.as_str()));
            made.push(id);
        }
        made.sort();
        made.dedup();
        assert_eq!(made.len(), 6, "each is another one");
        let mut fields = headers(&[("x-request-id", "7d4e-1"), ("x_request_id", "forged")]);
        let id = identify(&plan(true, false), &mut fields, true, &mut random).request;
        assert_eq!((id.as_deref(), fields.len()), (Some("7d4e-1"), 1));
    }

    #[test]
    fn a_parent_is_passed_on_or_made() {
        let mut random = Random::default();
        let long = format!("cc-{TRACE}-00f067aa0ba902b7-01-more");
        for parent in [format!("00-{TRACE}-00f067aa0ba902b7-00"), long] {
            let mut fields = headers(&[("traceparent", &parent), ("tracestate", "a=1")]);
            let found = identify(&plan(false, true), &mut fields, false, &mut random);
            assert_eq!(found, Identity { request: None, trace: Some(TRACE.to_owned()) });
            assert_eq!((fields["traceparent"].to_str().unwrap(), fields.len()), (parent.as_str(), 2));
        }
        for wrong in [
            String::new(),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{TRACE}"),
        ] {
            let mut fields = headers(&[("traceparent", &wrong), ("tracestate", "a=1")]);
            let trace = identify(&plan(false, true), &mut fields, false, &mut random).trace.unwrap();
            assert!(trace != TRACE && fields.len() == 1, "{wrong:?} {fields:?}");
            assert!(fields["traceparent"].to_str().unwrap().starts_with(&format!("00-{trace}-")), "{fields:?}");
        }
    }

    #[test]
    fn without_the_keys_fields_stay_as_they_are() {
        let mut fields = headers(&[("x-request-id", "any"), ("traceparent", "any")]);
        let before = fields.clone();
        assert_eq!(identify(&plan(false, false), &mut fields, false, &mut Random::default()), Identity::default());
        assert_eq!(fields, before);
    }
}
