//! Runs of the suite, one for each core at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{sync::PoisonError, thread};

use serde_json::json;

use super::Cases;
use super::install::{Suite, install};
use super::report::Report;
use crate::outcome::{Failure, Outcome};
use crate::process::{Deadline, Running};
use crate::stage::Context;
use crate::taut::{self, Certificates, Scheme};
use crate::{c_library, interop, paths};

/// One process of the suite.
#[derive(Debug)]
struct Job {
    name: String,
    scheme: Scheme,
    cases: Vec<String>,
}

impl Job {
    /// Its own empty folder.
    fn folder(&self) -> Result<PathBuf, Failure> {
        let folder = paths::own("autobahn/runs").join(&self.name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn log(&self) -> PathBuf {
        paths::log(&format!("autobahn-{}", self.name))
    }
}

/// The suite as client against `taut serve`.
pub(crate) fn server(context: &Context, cases: &Cases) -> Outcome {
    let suite = install(context)?;
    let certificates = taut::certificates(context)?;
    let plain = taut::serve_conformance(Scheme::Ws, &certificates, "auto")?;
    let secure = taut::serve_conformance(Scheme::Wss, &certificates, "auto")?;
    let url = |scheme| if scheme == Scheme::Ws { plain.url() } else { secure.url() };
    let here = |command: &mut Command, log: &Path| Running::start_logged(command, log);
    let deadline = context.deadline;
    all(&jobs("server", cases), |job| fuzz_server(job, &suite, &url(job.scheme), deadline, &here))
}

/// All usual cases against `taut serve` behind `taut proxy`: as a tunnel, and message by message.
pub(crate) fn proxied(context: &Context) -> Outcome {
    let jobs = |side: &str| jobs(side, &Cases::Usual);
    fuzz_proxied(context, &jobs("proxied-tunnel"), &jobs("proxied-messages"))
}

/// Cases that a proxy might spoil, likewise.
pub(crate) fn proxied_some(context: &Context) -> Outcome {
    let patterns = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.4.*", "7.*", "9.1.1", "9.2.1", "10.*", "12.1.1", "13.3.3"];
    let job = |side: &str| Job {
        name: format!("proxied-{side}-wss"),
        scheme: Scheme::Wss,
        cases: patterns.map(str::to_owned).into(),
    };
    fuzz_proxied(context, &[job("tunnel")], &[job("messages")])
}

fn fuzz_proxied(context: &Context, tunnels: &[Job], messages: &[Job]) -> Outcome {
    let suite = install(context)?;
    let certificates = taut::certificates(context)?;
    let server = taut::serve_conformance(Scheme::Ws, &certificates, "auto")?;
    let here = |command: &mut Command, log: &Path| Running::start_logged(command, log);
    let deadline = context.deadline;
    let mut failures = Vec::new();
    for (jobs, route) in [(tunnels, ""), (messages, "messages = { deflate = true, max-size = \"16MiB\" }\n")] {
        let proxy = |scheme| {
            let kind = if route.is_empty() { "tunnel" } else { "messages" };
            let text = format!(
                "[[route]]\nto = \"echo\"\n{route}[backend.echo]\nservers = [\"http://127.0.0.1:{}\"]\n",
                server.port
            );
            taut::proxy(&format!("autobahn-proxy-{kind}-{scheme}"), scheme, &certificates, &text)
        };
        let (plain, secure) = (proxy(Scheme::Ws)?, proxy(Scheme::Wss)?);
        let url = |scheme| if scheme == Scheme::Ws { plain.url() } else { secure.url() };
        if let Err(failure) = all(jobs, |job| fuzz_server(job, &suite, &url(job.scheme), deadline, &here)) {
            let (Failure::Failed(reason) | Failure::Skipped(reason)) = failure;
            failures.push(reason);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Failed(failures.join("; "))) }
}

/// Cases of every group as streams of one connection with HTTP/2, to which a program in Go carries them over extended CONNECT.
/// Few of them are with compression, which knows nothing of what carries it.
pub(crate) fn http2(context: &Context) -> Outcome {
    let suite = install(context)?;
    let mut carrier = interop::http2::carrier(context)?;
    let certificates = taut::certificates(context)?;
    let options = ["--http2", "--deflate", "--max-message", "16777216"];
    let server = taut::serve("autobahn-serve-http2", Scheme::Wss, &certificates, &options)?;
    let port = taut::free_port()?;
    carrier.arg(port.to_string()).arg(format!("https://127.0.0.1:{}", server.port)).arg(&certificates.ca);
    let mut carrier = Running::start_logged(&mut carrier, &paths::log("autobahn-http2-carrier"))?;
    taut::wait_until_listening(port, &mut carrier, Deadline::after(Duration::from_secs(60)))?;
    let here = |command: &mut Command, log: &Path| Running::start_logged(command, log);
    let limits = ["9.*", "10.*"].map(str::to_owned).into();
    let base =
        ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "12.1.1", "12.3.3", "12.5.4", "13.1.1", "13.3.3", "13.6.2"];
    let base = base.map(str::to_owned).into();
    let jobs = [("limits", limits), ("base", base)];
    let jobs = jobs.map(|(part, cases)| Job { name: format!("http2-{part}"), scheme: Scheme::Ws, cases });
    let deadline = context.deadline;
    all(&jobs, |job| fuzz_server(job, &suite, &job.scheme.url(port), deadline, &here))
}

/// Cases that depend on the driver, against `taut serve` over io_uring: sizes, fragments and closes.
pub(crate) fn uring(context: &Context) -> Outcome {
    if let Some(reason) = taut::lacks_uring()? {
        return Err(Failure::Skipped(reason));
    }
    let suite = install(context)?;
    let server = taut::serve_conformance(Scheme::Wss, &taut::certificates(context)?, "uring")?;
    let here = |command: &mut Command, log: &Path| Running::start_logged(command, log);
    let cases = ["1.*", "2.*", "5.*", "7.*", "9.1.*", "9.2.*", "10.*"].map(str::to_owned).into();
    let job = Job { name: "uring-wss".to_owned(), scheme: Scheme::Wss, cases };
    let (url, deadline) = (server.url(), context.deadline);
    all(&[job], |job| fuzz_server(job, &suite, &url, deadline, &here))
}

/// Groups 1 to 7 against one server, with the suite's command changed by `elsewhere`.
pub(crate) fn fuzz_elsewhere(
    suite: &Suite,
    (scheme, url): (Scheme, &str),
    deadline: Deadline,
    elsewhere: &(impl Fn(&Command) -> Command + Sync),
) -> Outcome {
    let cases = (1..=7).map(|group| format!("{group}.*")).collect();
    let job = Job { name: format!("xdp-{scheme}"), scheme, cases };
    let there = |command: &mut Command, log: &Path| Running::start_logged(&mut elsewhere(command), log);
    all(&[job], |job| fuzz_server(job, suite, url, deadline, &there))
}

/// Starts the suite's command, whose output goes to the file.
type Start<'a> = &'a (dyn Fn(&mut Command, &Path) -> Result<Running, Failure> + Sync);

fn fuzz_server(job: &Job, suite: &Suite, url: &str, deadline: Deadline, start: Start<'_>) -> Result<Report, Failure> {
    let folder = job.folder()?;
    let spec = json!({
        "outdir": folder, "cases": job.cases, "exclude-cases": [], "exclude-agent-cases": {},
        "servers": [{ "agent": "tautline", "url": url }],
    });
    let mut fuzzer = start(&mut command(suite, "fuzzingclient", &folder, &spec)?, &job.log())?;
    if fuzzer.wait(deadline)?.is_none() {
        return Err(Failure::Failed(format!("{} took too long; see {}", job.name, job.log().display())));
    }
    Ok(Report::read(&folder, &job.log()))
}

/// The suite as server against our client.
pub(crate) fn client(context: &Context, cases: &Cases) -> Outcome {
    fuzz_client(context, &|| Command::new(taut::example("autobahn_client")), &jobs("client", cases))
}

/// Cases that depend on how an end is driven, both ways against the crate for tokio.
pub(crate) fn tokio(context: &Context) -> Outcome {
    let suite = install(context)?;
    let certificates = taut::certificates(context)?;
    let patterns = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.4.*", "7.*", "9.1.*", "9.2.*", "10.*", "12.1.1", "13.3.3"];
    let job = |side: &str| {
        let cases = patterns.map(str::to_owned).into();
        Job { name: format!("tokio-{side}-wss"), scheme: Scheme::Wss, cases }
    };
    let port = taut::free_port()?;
    let mut command = Command::new(taut::example("autobahn_tokio"));
    command.args(["serve", &format!("127.0.0.1:{port}")]).arg(&certificates.chain).arg(&certificates.key);
    let mut server = Running::start_logged(&mut command, &paths::log("autobahn-tokio-serve"))?;
    taut::wait_until_listening(port, &mut server, Deadline::after(Duration::from_secs(60)))?;
    let here = |command: &mut Command, log: &Path| Running::start_logged(command, log);
    let deadline = context.deadline;
    all(&[job("server")], |job| fuzz_server(job, &suite, &job.scheme.url(port), deadline, &here))?;
    fuzz_client(context, &|| Command::new(taut::example("autobahn_tokio")), &[job("client")])
}

/// Cases that depend on how an end is driven, both ways against the package for Python.
pub(crate) fn python(context: &Context) -> Outcome {
    let suite = install(context)?;
    let certificates = taut::certificates(context)?;
    let patterns = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.4.*", "7.*", "9.1.1", "9.2.1", "10.*", "12.1.1", "13.3.3"];
    let job = |side: &str| {
        let cases = patterns.map(str::to_owned).into();
        Job { name: format!("python-{side}-wss"), scheme: Scheme::Wss, cases }
    };
    let ours = || {
        let mut command = Command::new(crate::python::interpreter());
        command.arg(paths::root().join("bindings/python/tests/autobahn.py"));
        command
    };
    let port = taut::free_port()?;
    let mut command = ours();
    command.args(["serve", &format!("127.0.0.1:{port}")]).arg(&certificates.chain).arg(&certificates.key);
    let mut server = Running::start_logged(&mut command, &paths::log("autobahn-python-serve"))?;
    taut::wait_until_listening(port, &mut server, Deadline::after(Duration::from_secs(60)))?;
    let here = |command: &mut Command, log: &Path| Running::start_logged(command, log);
    let deadline = context.deadline;
    all(&[job("server")], |job| fuzz_server(job, &suite, &job.scheme.url(port), deadline, &here))?;
    fuzz_client(context, &ours, &[job("client")])
}

/// Cases of every group without compression, against the example in C.
pub(crate) fn in_c(context: &Context) -> Outcome {
    let suite = install(context)?;
    let certificates = taut::certificates(context)?;
    let programs = c_library::examples(context)?;
    let port = taut::free_port()?;
    let mut command = Command::new(programs.join("ws_echo"));
    command.arg(format!("127.0.0.1:{port}")).arg(&certificates.chain).arg(&certificates.key);
    let mut server = Running::start_logged(&mut command, &paths::log("autobahn-c-serve"))?;
    taut::wait_until_listening(port, &mut server, Deadline::after(Duration::from_secs(60)))?;
    let cases = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.4.*", "7.*", "9.1.*", "9.2.*", "10.*"].map(str::to_owned).into();
    let job = Job { name: "c-server-wss".to_owned(), scheme: Scheme::Wss, cases };
    let here = |command: &mut Command, log: &Path| Running::start_logged(command, log);
    let deadline = context.deadline;
    all(&[job], |job| fuzz_server(job, &suite, &job.scheme.url(port), deadline, &here))
}

fn fuzz_client(context: &Context, ours: &(dyn Fn() -> Command + Sync), jobs: &[Job]) -> Outcome {
    let suite = install(context)?;
    let certificates = taut::certificates(context)?;
    let deadline = context.deadline;
    all(jobs, |job| {
        let folder = job.folder()?;
        let port = taut::free_port()?;
        let url = job.scheme.url(port);
        let mut spec = json!({
            "outdir": folder, "cases": job.cases, "exclude-cases": [], "exclude-agent-cases": {}, "url": url,
        });
        if job.scheme == Scheme::Wss {
            spec["key"] = json!(certificates.key);
            spec["cert"] = json!(certificates.chain);
        }
        let mut fuzzer = Running::start_logged(&mut command(&suite, "fuzzingserver", &folder, &spec)?, &job.log())?;
        taut::wait_until_listening(port, &mut fuzzer, Deadline::after(Duration::from_secs(60)))?;
        let log = paths::log(&format!("autobahn-{}-ours", job.name));
        let mut ours = Running::start_logged(&mut our_client(ours(), &url, job.scheme, &certificates), &log)?;
        match ours.wait(deadline)? {
            None => Err(Failure::Failed(format!("{} took too long; see {}", job.name, job.log().display()))),
            Some(status) if !status.success() => {
                Err(Failure::Failed(format!("our client in {} ended with {status}; see {}", job.name, log.display())))
            }
            Some(_) => Ok(Report::read(&folder, &job.log())),
        }
    })
}

fn our_client(mut command: Command, url: &str, scheme: Scheme, certificates: &Certificates) -> Command {
    command.arg(url);
    if scheme == Scheme::Wss {
        command.arg("--ca").arg(&certificates.ca);
    }
    command
}

fn command(suite: &Suite, mode: &str, folder: &Path, spec: &serde_json::Value) -> Result<Command, Failure> {
    let file = folder.join("spec.json");
    fs::write(&file, spec.to_string())?;
    let mut command = suite.command(mode, &file);
    command.current_dir(folder);
    Ok(command)
}

fn jobs(side: &str, cases: &Cases) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (part, cases) in cases.runs() {
        for scheme in [Scheme::Wss, Scheme::Ws] {
            jobs.push(Job { name: format!("{side}-{scheme}-{part}"), scheme, cases: cases.clone() });
        }
    }
    jobs
}

/// Runs all jobs, one for each core at a time, and prints their findings.
fn all(jobs: &[Job], run: impl Fn(&Job) -> Result<Report, Failure> + Sync) -> Outcome {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = run(job).unwrap_or_else(|failure| Report::failed(&failure));
            eprintln!("{}: {}", job.name, report.summary());
            if !report.wrong.is_empty() {
                report.wrong.iter().take(25).for_each(|line| eprintln!("  {line}"));
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(format!(
                    "{} in {}",
                    report.wrong.len(),
                    job.name
                ));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    match failures.into_inner().unwrap_or_else(PoisonError::into_inner).as_slice() {
        [] => Ok(()),
        failures => Err(Failure::Failed(format!("violations: {}", failures.join(", ")))),
    }
}
