//! Runs of the suite, one for each core at a time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{sync::PoisonError, thread};

use serde_json::json;

use super::Cases;
use super::install::{Suite, install};
use super::report::Report;
use crate::outcome::{Failure, Outcome, none_of};
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
    fn new(name: String, scheme: Scheme, cases: &[&str]) -> Self {
        Self { name, scheme, cases: cases.iter().map(|&case| case.to_owned()).collect() }
    }

    /// Its own empty folder.
    fn folder(&self) -> Result<PathBuf, Failure> {
        let folder = paths::own("autobahn/runs").join(&self.name);
        paths::empty(&folder)?;
        Ok(folder)
    }

    fn log(&self) -> PathBuf {
        paths::log(&format!("autobahn-{}", self.name))
    }
}

/// The installed suite, certificates for the servers, and the end of the stage.
struct Bench {
    suite: Suite,
    certificates: Certificates,
    deadline: Deadline,
}

impl Bench {
    fn new(context: &Context) -> Result<Self, Failure> {
        let suite = install(context)?;
        Ok(Self { suite, certificates: taut::certificates(context)?, deadline: context.deadline })
    }

    /// Runs jobs as clients of servers, whose URLs follow from the scheme.
    fn fuzz(&self, jobs: &[Job], url: impl Fn(Scheme) -> String + Sync) -> Outcome {
        all(jobs, |job| fuzz_server(job, &self.suite, &url(job.scheme), self.deadline, &Running::start_logged))
    }

    /// Runs a job as client of another program over TLS, which takes its address, the certificate and the key.
    fn fuzz_other(&self, name: &str, mut server: Command, further: &[&str], cases: &[&str]) -> Outcome {
        let port = taut::free_port()?;
        server.args(further).arg(format!("127.0.0.1:{port}"));
        server.arg(&self.certificates.chain).arg(&self.certificates.key);
        let _server = taut::start(&mut server, port, &format!("autobahn-{name}-serve"))?;
        self.fuzz(&[Job::new(format!("{name}-server-wss"), Scheme::Wss, cases)], |scheme| scheme.url(port))
    }
}

/// Cases of every group without compression, and two with it. The longest of messages of a size or of a number are left out.
const SOME: [&str; 12] =
    ["1.*", "2.*", "3.*", "4.*", "5.*", "6.4.*", "7.*", "9.1.1", "9.2.1", "10.*", "12.1.1", "13.3.3"];

/// The suite as client against `taut serve`.
pub(crate) fn server(context: &Context, cases: &Cases) -> Outcome {
    let bench = Bench::new(context)?;
    let plain = taut::serve_conformance(Scheme::Ws, &bench.certificates, "auto")?;
    let secure = taut::serve_conformance(Scheme::Wss, &bench.certificates, "auto")?;
    bench.fuzz(&jobs("server", cases), |scheme| if scheme == Scheme::Ws { plain.url() } else { secure.url() })
}

/// All usual cases against `taut serve` behind `taut proxy`: as a tunnel, and message by message.
pub(crate) fn proxied(context: &Context) -> Outcome {
    let jobs = |side: &str| jobs(side, &Cases::Usual);
    fuzz_proxied(context, &jobs("proxied-tunnel"), &jobs("proxied-messages"))
}

/// Cases that a proxy might spoil, likewise.
pub(crate) fn proxied_some(context: &Context) -> Outcome {
    let job = |side: &str| Job::new(format!("proxied-{side}-wss"), Scheme::Wss, &SOME);
    fuzz_proxied(context, &[job("tunnel")], &[job("messages")])
}

fn fuzz_proxied(context: &Context, tunnels: &[Job], messages: &[Job]) -> Outcome {
    let bench = Bench::new(context)?;
    let server = taut::serve_conformance(Scheme::Ws, &bench.certificates, "auto")?;
    let mut failures = Vec::new();
    for (jobs, route) in [(tunnels, ""), (messages, "messages = { deflate = true, max-size = \"16MiB\" }\n")] {
        let proxy = |scheme| {
            let kind = if route.is_empty() { "tunnel" } else { "messages" };
            let text = format!(
                "[[route]]\nto = \"echo\"\n{route}[backend.echo]\nservers = [\"http://127.0.0.1:{}\"]\n",
                server.port
            );
            taut::proxy(&format!("autobahn-proxy-{kind}-{scheme}"), scheme, &bench.certificates, &text)
        };
        let (plain, secure) = (proxy(Scheme::Ws)?, proxy(Scheme::Wss)?);
        let fuzzed = bench.fuzz(jobs, |scheme| if scheme == Scheme::Ws { plain.url() } else { secure.url() });
        failures.extend(fuzzed.err().map(Failure::reason));
    }
    none_of(&failures, "; ")
}

/// Cases of every group as streams of one connection with HTTP/2, to which a program in Go carries them over extended CONNECT.
/// Few of them are with compression, which knows nothing of what carries it.
pub(crate) fn http2(context: &Context) -> Outcome {
    let bench = Bench::new(context)?;
    let mut carrier = interop::http2::carrier(context)?;
    let options = ["--http2", "--deflate", "--max-message", "16777216"];
    let server = taut::serve("autobahn-serve-http2", Scheme::Wss, &bench.certificates, &options)?;
    let port = taut::free_port()?;
    carrier.arg(port.to_string()).arg(format!("https://127.0.0.1:{}", server.port)).arg(&bench.certificates.ca);
    let _carrier = taut::start(&mut carrier, port, "autobahn-http2-carrier")?;
    let base =
        ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "12.1.1", "12.3.3", "12.5.4", "13.1.1", "13.3.3", "13.6.2"];
    let jobs = [("limits", &["9.*", "10.*"][..]), ("base", &base)];
    let jobs = jobs.map(|(part, cases)| Job::new(format!("http2-{part}"), Scheme::Ws, cases));
    bench.fuzz(&jobs, |scheme| scheme.url(port))
}

/// Cases that depend on the driver, against `taut serve` over io_uring: sizes, fragments and closes.
pub(crate) fn uring(context: &Context) -> Outcome {
    if let Some(reason) = taut::lacks_uring()? {
        return Err(Failure::Skipped(reason));
    }
    let bench = Bench::new(context)?;
    let server = taut::serve_conformance(Scheme::Wss, &bench.certificates, "uring")?;
    let cases = ["1.*", "2.*", "5.*", "7.*", "9.1.*", "9.2.*", "10.*"];
    bench.fuzz(&[Job::new("uring-wss".to_owned(), Scheme::Wss, &cases)], |_| server.url())
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
    let cases = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.4.*", "7.*", "9.1.*", "9.2.*", "10.*", "12.1.1", "13.3.3"];
    both_ways(context, "tokio", &|| Command::new(taut::example("autobahn_tokio")), &cases)
}

/// Cases that depend on how an end is driven, both ways against the package for Python.
pub(crate) fn python(context: &Context) -> Outcome {
    let ours = || {
        let mut command = Command::new(crate::python::interpreter());
        command.arg(paths::root().join("bindings/python/tests/autobahn.py"));
        command
    };
    both_ways(context, "python", &ours, &SOME)
}

/// Runs cases against a program, which is a server with the argument `serve`, and otherwise a client.
fn both_ways(context: &Context, name: &str, ours: &(dyn Fn() -> Command + Sync), cases: &[&str]) -> Outcome {
    Bench::new(context)?.fuzz_other(name, ours(), &["serve"], cases)?;
    fuzz_client(context, ours, &[Job::new(format!("{name}-client-wss"), Scheme::Wss, cases)])
}

/// Cases of every group without compression, against the example in C.
pub(crate) fn in_c(context: &Context) -> Outcome {
    let bench = Bench::new(context)?;
    let server = Command::new(c_library::examples(context)?.join("ws_echo"));
    let cases = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.4.*", "7.*", "9.1.*", "9.2.*", "10.*"];
    bench.fuzz_other("c", server, &[], &cases)
}

fn fuzz_client(context: &Context, ours: &(dyn Fn() -> Command + Sync), jobs: &[Job]) -> Outcome {
    let Bench { suite, certificates, deadline } = Bench::new(context)?;
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
        let mut fuzzer = command(&suite, "fuzzingserver", &folder, &spec)?;
        let _fuzzer = taut::start(&mut fuzzer, port, &format!("autobahn-{}", job.name))?;
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
            let report = run(job).unwrap_or_else(|failure| Report::broken(failure.reason()));
            eprintln!("{}: {}", job.name, report.summary());
            if !report.wrong.is_empty() {
                report.wrong.iter().take(25).for_each(|line| eprintln!("  {line}"));
                let failure = format!("{} violations in {}", report.wrong.len(), job.name);
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    none_of(&failures.into_inner().unwrap_or_else(PoisonError::into_inner), ", ")
}
