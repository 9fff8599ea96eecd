//! The configuration: a file in TOML, or flags, made into a [`Plan`].
//!
//! All faults of a file are reported at once, each with its line and remedy. A file with a fault makes no plan.

mod backend;
mod clients;
mod fault;
mod file;
mod files;
mod listener;
mod messages;
mod nearest;
mod remedy;
mod route;

pub use self::fault::{Fault, Faults};
use self::fault::{Finder, unreadable};
use self::file::File;
use self::files::{Files, read_file};
use crate::plan::{Backend, Plan};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tautline::http::StatusCode;

/// Reads the file of a configuration. Servers that `before` had too keep their counts and health.
///
/// # Errors
/// If the file, or one that it names, cannot be read, and for each fault in it.
pub fn read(path: &Path, before: Option<&Plan>, now: Instant) -> Result<Plan, Faults> {
    let text = read_file(path)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "the file is no UTF-8: save it as UTF-8".to_owned()));
    let text = text.map_err(|what| unreadable(path, what))?;
    made(Files::of(path).looking(), path, &text, before, now)
}

/// Makes a plan of a configuration's text. Files that it names are looked for in the folder of `path`.
///
/// Certificates and keys may be missing: TLS reads them.
///
/// # Errors
/// For each fault in it.
pub fn parse(path: &Path, text: &str, before: Option<&Plan>, now: Instant) -> Result<Plan, Faults> {
    made(Files::of(path), path, text, before, now)
}

fn made(files: Files<'_>, path: &Path, text: &str, before: Option<&Plan>, now: Instant) -> Result<Plan, Faults> {
    let mut finder = Finder::new(path, text);
    let file: File = match toml::from_str(text) {
        Ok(file) => file,
        Err(error) => {
            finder.add_parsed(&error);
            return Err(finder.fail());
        }
    };
    let reader = Reader { files, before, now };
    let mut plan = reader.plan(file, &mut finder);
    (plan.files, plan.folders) = reader.files.into_seen();
    finder.finish(plan)
}

/// Makes the plan of flags: all requests go to these servers.
///
/// # Errors
/// In words, if one of them has no form of a server.
pub fn of_servers(servers: &[String], before: Option<&Plan>, now: Instant) -> Result<Plan, String> {
    let list: Vec<String> = servers.iter().map(|server| format!("{server:?}")).collect();
    let text = format!("[[route]]\nto = \"servers\"\n[backend.servers]\nservers = [{}]\n", list.join(", "));
    let faults = |faults: Faults| {
        let said: Vec<&str> = faults.list().iter().map(|fault| fault.what.as_str()).collect();
        said.join("; ")
    };
    parse(Path::new("--to"), &text, before, now).map_err(faults)
}

/// The place of a configuration, for what it names.
struct Reader<'p> {
    files: Files<'p>,
    before: Option<&'p Plan>,
    now: Instant,
}

impl Reader<'_> {
    fn plan(&self, file: File, finder: &mut Finder<'_>) -> Plan {
        let plain = file.plain.as_ref().is_some_and(|plain| *plain.get_ref());
        for text in &file.listen {
            let _ = finder.take(text.span(), listener::form(text.get_ref()));
        }
        let mut plan = Plan {
            listen: file.listen.iter().map(|text| text.get_ref().clone()).collect(),
            plain,
            http2: file.http2.as_ref().is_some_and(|http2| *http2.get_ref()),
            request_id: file.request_id.unwrap_or(true),
            traceparent: file.traceparent.unwrap_or(false),
            ..Plan::default()
        };
        if let Some(plain) = file.plain.as_ref().filter(|plain| *plain.get_ref() && !file.certificates.is_empty()) {
            finder.add(plain.span(), "plain = true serves without TLS: leave it out, or the certificates");
        }
        if let Some(http2) = file.http2.as_ref().filter(|_| plan.http2 && plain) {
            finder
                .add(http2.span(), "http2 = true needs TLS, by which clients choose it (ALPN): leave it out, or plain");
        }
        clients::certificates(&self.files, &file, &mut plan, finder);
        plan.acme = file.acme.and_then(|acme| listener::ordered(&self.files, acme, &plan, finder));
        plan.listener = listener::listener(&file.client, &file.limits, finder);
        listener::limits(&file.limits, &mut plan, self.before, self.now, finder);
        let mut backends = BTreeMap::new();
        for (name, backend) in file.backend {
            let before = self.before.and_then(|plan| plan.backends.iter().find(|old| old.name == *name.get_ref()));
            let before: Option<&Backend> = before.map(Arc::as_ref);
            let made = backend::backend(name.get_ref(), backend, before, self.now, finder);
            backends.insert(name.get_ref().clone(), plan.backends.len());
            plan.backends.push(Arc::new(made));
        }
        let mut used = vec![false; plan.backends.len()];
        if file.route.is_empty() {
            finder.add(0..0, "there is no route: add [[route]] with to = \"…\", redirect, answer or files");
        }
        let mut lines = Vec::new();
        for entry in file.route {
            let line = finder.line(&entry.span());
            lines.push(line);
            route::add(
                &self.files,
                entry,
                &mut plan,
                &route::Known { backends: &backends, lines: &lines, before: self.before },
                finder,
            );
        }
        plan.count_on(self.before);
        for route in &plan.routes {
            if let crate::plan::Action::Forward(forward) = &route.action {
                used.get_mut(forward.backend).into_iter().for_each(|used| *used = true);
            }
        }
        for (backend, _) in plan.backends.iter().zip(used).filter(|(_, used)| !used) {
            finder.warn(format!("backend {:?} has no route", backend.name));
        }
        for (status, page) in file.pages {
            let code = status.get_ref().parse::<u16>().ok().filter(|code| (400..=599).contains(code));
            let Some(status_code) = code.and_then(|code| StatusCode::from_u16(code).ok()) else {
                finder.add(status.span(), format!("{:?} is no status of an error: write 400 to 599", status.get_ref()));
                continue;
            };
            if let Some(body) = finder.take(page.span(), self.files.read(page.get_ref())) {
                plan.pages.push((status_code, body));
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests;
