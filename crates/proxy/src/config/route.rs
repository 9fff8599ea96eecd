//! `[[route]]`: hosts and a path, and the outcome of their requests.

use super::fault::Finder;
use super::file::{self, Text};
use super::files::Files;
use super::messages::{messages_before, settings};
use super::nearest::suggestion;
use crate::messages::Messages;
use crate::plan::{Action, Answer, Certified, Edits, Folder, Forward, HostSent, Plan, Route};
use crate::prefix::Prefix;
use crate::route::{Host, HostPattern, NormalPath, PathPattern};
use crate::tally::Tallies;
use std::collections::BTreeMap;
use std::sync::Arc;
use tautline::Origins;
use tautline::http::{HeaderName, HeaderValue, StatusCode};
use toml::Spanned;

/// Headers of one connection, or of the frame of a message. The proxy writes them itself.
const OWN: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "set-cookie",
];

/// The parts of a configuration that a route refers to.
pub(super) struct Known<'k> {
    pub(super) backends: &'k BTreeMap<String, usize>,
    /// The lines of the routes so far, this one included.
    pub(super) lines: &'k [usize],
    /// The plan that this one replaces.
    pub(super) before: Option<&'k Plan>,
}

/// Adds a route to the plan, and its hosts and path to the table.
pub(super) fn add(
    files: &Files<'_>,
    entry: Spanned<file::Route>,
    plan: &mut Plan,
    known: &Known<'_>,
    finder: &mut Finder<'_>,
) {
    let span = entry.span();
    let route = entry.into_inner();
    let (path_span, path) =
        route.path.as_ref().map_or_else(|| (span.clone(), "/"), |path| (path.span(), path.get_ref().as_str()));
    let path = finder.take(path_span, PathPattern::new(path, route.exact));
    let has_place = path.is_some();
    let path = path.unwrap_or_else(|| PathPattern::Prefix("/".to_owned()));
    let mut hosts = Vec::new();
    for text in listed(route.hosts.as_ref(), "hosts = [] fits no request: leave it out for any host", finder) {
        hosts.extend(finder.take(text.span(), HostPattern::new(text.get_ref())));
    }
    if route.hosts.is_none() {
        hosts.push(HostPattern::Any);
    }
    let number = plan.routes.len();
    for host in hosts.iter().filter(|_| has_place) {
        if let Err(other) = plan.table.add(host, &path, number) {
            let line = known.lines.get(other).copied().unwrap_or_default();
            let place = format!("host {host} and path {:?}", path.as_str());
            finder.add(span.clone(), format!("{place} have two routes: leave out this one, or that of line {line}"));
        }
    }
    let name = route
        .name
        .clone()
        .unwrap_or_else(|| hosts.first().map(|host| format!("{host}{}", path.as_str())).unwrap_or_default());
    let origins = route.origins.as_ref().and_then(|list| {
        let read = Origins::list(list.get_ref()).map_err(|error| error.to_string());
        finder.take(list.span(), read)
    });
    let needs_certificate = route.client_certificate.as_ref().is_some_and(|needs| {
        if !plan.asks_clients() {
            let what =
                "client-certificate has no effect without client-ca: add that key at the top, or to a certificate";
            finder.add(needs.span(), what);
        }
        *needs.get_ref() == Certified::Required
    });
    let allow = "allow = [] lets nobody in: leave it out for all clients, or write deny = [\"0.0.0.0/0\", \"::/0\"]";
    let allow = prefixes(listed(route.allow.as_ref(), allow, finder), finder);
    let deny = prefixes(&route.deny, finder);
    let mut action = action(files, &span, route, known, finder);
    if let Action::Forward(Forward { messages: Some(messages), .. }) = &mut action
        && let Some(before) = known.before.and_then(|before| messages_before(before, plan, (&name, &path), messages))
    {
        *messages = before;
    }
    let tallies = Tallies::default();
    plan.routes.push(Route { name, path, action, allow, deny, needs_certificate, origins, tallies });
}

/// The entries of a list, which has some.
fn listed<'l>(list: Option<&'l Spanned<Vec<Text>>>, how: &str, finder: &mut Finder<'_>) -> &'l [Text] {
    let Some(list) = list else { return &[] };
    if list.get_ref().is_empty() {
        finder.add(list.span(), how);
    }
    list.get_ref()
}

fn prefixes(list: &[Text], finder: &mut Finder<'_>) -> Vec<Prefix> {
    list.iter().filter_map(|text| finder.take(text.span(), text.get_ref().parse())).collect()
}

fn action(
    files: &Files<'_>,
    span: &std::ops::Range<usize>,
    route: file::Route,
    known: &Known<'_>,
    finder: &mut Finder<'_>,
) -> Action {
    let nothing = || Action::Answer(answer_of(StatusCode::NOT_FOUND, None, Vec::new()));
    let first_edit = |edits: &file::Edits| edits.remove.first().or_else(|| edits.set.keys().next()).map(Spanned::span);
    let forwards_only = [
        (first_edit(&route.request), "request"),
        (route.rewrite.as_ref().filter(|_| route.files.is_none()).map(Spanned::span), "rewrite"),
        (route.host.as_ref().map(Spanned::span), "host"),
        (route.origins.as_ref().map(Spanned::span), "origins"),
        (route.messages.as_ref().map(Spanned::span), "messages"),
    ];
    if route.to.is_none() {
        for (span, key) in forwards_only {
            if let Some(span) = span {
                finder.add(span, format!("{key} has no effect without `to`: leave it out"));
            }
        }
    }
    match (route.to, route.redirect, route.answer, route.files) {
        (Some(to), None, None, None) => {
            let request = edits(route.request, finder);
            let response = edits(route.response, finder);
            let rewrite = route.rewrite.and_then(|text| finder.take(text.span(), rewrite(text.get_ref())));
            let host =
                route.host.and_then(|text| finder.take(text.span(), host_sent(text.get_ref()))).unwrap_or_default();
            let messages =
                route.messages.map(|messages| Arc::new(Messages::new(settings(messages.into_inner(), finder))));
            let Some(&backend) = known.backends.get(to.get_ref()) else {
                let near = suggestion(to.get_ref(), known.backends.keys().map(String::as_str));
                finder.add(to.span(), format!("there is no backend {:?}: {near}", to.get_ref()));
                return nothing();
            };
            Action::Forward(Forward { backend, rewrite, host, request, response, messages })
        }
        (None, None, None, Some(folder)) => {
            let response = edits(route.response, finder);
            let rewrite = route.rewrite.and_then(|text| finder.take(text.span(), rewrite(text.get_ref())));
            let opened = finder.take(folder.span(), files.open(folder.get_ref()));
            opened.map_or_else(nothing, |files| Action::Files(Folder { files, rewrite, response }))
        }
        (None, Some(redirect), None, None) => {
            let (at, response) = (redirect.span(), edits(route.response, finder));
            finder.take(at, self::redirect(redirect.into_inner(), response)).unwrap_or_else(nothing)
        }
        (None, None, Some(answer), None) => {
            let (at, response) = (answer.span(), edits(route.response, finder));
            let made = self::answer(files, answer.into_inner());
            finder.take(at, made).map_or_else(nothing, |answer| Action::Answer(Answer { response, ..answer }))
        }
        (None, None, None, None) => {
            finder.add(span.clone(), "the route has no outcome: write to = \"BACKEND\", redirect, answer or files");
            nothing()
        }
        _ => {
            finder.add(
                span.clone(),
                "the route has more than one outcome: keep one of `to`, `redirect`, `answer` and `files`",
            );
            nothing()
        }
    }
}

fn edits(edits: file::Edits, finder: &mut Finder<'_>) -> Edits {
    let mut made = Edits::default();
    let name = |text: &Text, finder: &mut Finder<'_>| {
        let name = HeaderName::try_from(text.get_ref().as_str())
            .map_err(|_| format!("{:?} is no name of a header", text.get_ref()));
        let name = name.and_then(|name| {
            let own = OWN.contains(&name.as_str()) || name.as_str().starts_with("sec-websocket-");
            if own { Err(format!("the proxy writes {name} itself: leave it out")) } else { Ok(name) }
        });
        finder.take(text.span(), name)
    };
    for text in &edits.remove {
        made.remove.extend(name(text, finder));
    }
    for (text, value) in &edits.set {
        let (at, value) = (value.span(), HeaderValue::try_from(value.get_ref().as_str()));
        let value = finder
            .take(at, value.map_err(|_| "no value of a header has line ends or controls: leave them out".to_owned()));
        made.set.extend(name(text, finder).zip(value));
    }
    made
}

fn rewrite(text: &str) -> Result<String, String> {
    let path = NormalPath::new(text).map_err(|error| format!("{text:?} is no path: {}", error.reason()))?;
    if path.as_str() == text { Ok(text.to_owned()) } else { Err(format!("write {:?}", path.as_str())) }
}

fn host_sent(text: &str) -> Result<HostSent, String> {
    match text {
        "client" => Ok(HostSent::Client),
        "server" => Ok(HostSent::Server),
        name => {
            let is_host = Host::new(name).is_some();
            let value = HeaderValue::try_from(name).ok().filter(|_| is_host);
            value.map(HostSent::Name).ok_or_else(|| format!("{name:?} is no host: write client, server or a name"))
        }
    }
}

fn redirect(redirect: file::Redirect, response: Edits) -> Result<Action, String> {
    let status = redirect.status.unwrap_or(308);
    let status = StatusCode::from_u16(status).ok().filter(|status| matches!(status.as_u16(), 301..=303 | 307 | 308));
    let status = status.ok_or("no redirect has this status: write 301, 302, 303, 307 or 308")?;
    let is_target =
        redirect.to.starts_with('/') || redirect.to.starts_with("https://") || redirect.to.starts_with("http://");
    if !is_target || HeaderValue::try_from(&redirect.to).is_err() || redirect.to.starts_with("//") {
        return Err(format!(
            "{:?} is no target: write a path, https://… or http://…; * at its end keeps path and query",
            redirect.to
        ));
    }
    Ok(Action::Redirect { status, to: redirect.to, response })
}

fn answer(files: &Files<'_>, answer: file::Answer) -> Result<Answer, String> {
    let status = StatusCode::from_u16(answer.status).ok().filter(|status| status.as_u16() >= 200);
    let status = status.filter(|status| status.as_u16() <= 599);
    let status = status.ok_or("no answer has this status: write 200 to 599")?;
    let body = match (answer.body, answer.file) {
        (Some(_), Some(_)) => return Err("an answer has one body: keep `body` or `file`".to_owned()),
        (Some(body), None) => body.into_bytes(),
        (None, Some(file)) => files.read(&file)?,
        (None, None) => Vec::new(),
    };
    let content_type = answer.content_type.map(HeaderValue::try_from).transpose();
    let content_type = content_type.map_err(|_| "content-type has line ends or controls: leave them out")?;
    Ok(answer_of(status, content_type, body))
}

fn answer_of(status: StatusCode, content_type: Option<HeaderValue>, body: Vec<u8>) -> Answer {
    let content_type = content_type.unwrap_or(HeaderValue::from_static("text/plain; charset=utf-8"));
    Answer { status, content_type, body, response: Edits::default() }
}
