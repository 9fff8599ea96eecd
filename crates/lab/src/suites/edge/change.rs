//! Changes of a proxy under load: what they cost those whose connections are open.

use super::super::running::Live;
use super::super::{Kind, Lab, Metrics, group};
use super::case::{CONNECTIONS, RATE, Who};
use super::site::{Site, configuration, start_ours};
use super::turn::{Change, signal, wait_until};
use crate::cpu::Pinned;
use crate::load::{Echo, Server, Traffic};
use crate::suites::Effort;
use crate::{Error, Metric, Span};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Time for a process that has nothing left to do until it has ended.
const END: Duration = Duration::from_millis(300);

/// Changes in a measurement.
pub(super) const fn changes(effort: Effort) -> u32 {
    if let Effort::Smoke = effort { 1 } else { 3 }
}

/// A proxy that can be told to change.
struct Changing<'a> {
    site: &'a Site,
    who: Who,
    live: Live,
    /// Its configuration.
    file: PathBuf,
}

impl Changing<'_> {
    /// Changes it for the `number`th time. Our new process serves when this returns.
    fn change(&self, change: Change, number: u32) -> Result<(), String> {
        let first = self.live.pid();
        if let Who::Other(program) = self.who {
            return self.site.installed(program)?.change(change, first, &self.file);
        }
        let newest = group::members(first).last().copied().ok_or("it has ended")?;
        match change {
            Change::Reload => {
                // A file that is written in place could be read half.
                let new = self.file.with_extension("new");
                fs::write(&new, configuration(self.site.backend.address, number, ""))
                    .and_then(|()| fs::rename(&new, &self.file))
                    .map_err(|error| format!("{}: {error}", self.file.display()))?;
                signal(newest, Signal::HUP)
            }
            Change::Program => {
                signal(newest, Signal::USR2)?;
                wait_until(|| !group::members(first).contains(&newest))
            }
        }
    }
}

/// Messages at the fixed rate to a new proxy, while it changes.
pub(super) fn measure(lab: &Lab<'_>, site: &Site, who: Who, change: Change) -> Result<Metrics, Error> {
    let (live, file) = match who {
        Who::Other(program) => {
            let running = site.start_other(lab, program, true)?;
            let file = running.file.clone();
            (Live::Other(running), file)
        }
        Who::Ours(Kind::Proxy(driver)) => {
            let file = site.certificates.folder().join(format!("changes-{driver}.toml"));
            let text = configuration(site.backend.address, 0, "");
            (start_ours(lab, driver, &site.certificates, (&file, &text))?, file)
        }
        _ => return Err(Error::Failed("it does not change".to_owned())),
    };
    let proxy = Changing { site, who, live, file };
    let Span { warmup, duration } = lab.span();
    let most = match who {
        Who::Other(program) => site.installed(program).map_err(Error::Failed)?.most(change),
        _ => u32::MAX,
    };
    let (count, cpu) = (changes(lab.effort).min(most), lab.placement.server);
    // Connections are being opened at first.
    let between = 3 * duration;
    let load = echo(proxy.live.server()?, Span { warmup, duration: between * (count + 1) });
    let (run, changed) = std::thread::scope(|threads| {
        let changes = threads.spawn(|| {
            // Each process that it starts is the server's work.
            let _pinned = Pinned::to(cpu).map_err(|error| error.to_string())?;
            (1..=count).try_for_each(|number| {
                std::thread::sleep(between);
                proxy.change(change, number)
            })
        });
        let run = load.run(&mut |_| {});
        (run, changes.join().unwrap_or_else(|_| Err("the thread of the changes panicked".to_owned())))
    });
    changed.map_err(|why| Error::Failed(format!("{}: {why}", change.name())))?;
    let (measured, errors) = run?;
    std::thread::sleep(END);
    let processes = group::members(proxy.live.pid()).len();
    let mut metrics = measured.latencies.metrics_with_max();
    metrics.extend([(Metric::Errors, errors.total() as f64), (Metric::Processes, processes as f64)]);
    Ok(metrics)
}

/// Messages of 64 B at the fixed rate, in spite of connections that end.
fn echo(mut server: Server, span: Span) -> Traffic {
    // It has other processes later.
    server.pid = None;
    let echo = Echo::small(server, CONNECTIONS, Some(RATE), span);
    Traffic { echo, ramp: Duration::ZERO, stages: Vec::new(), think: None, template: None, takes_any_reply: false }
}
