//! A relay between two processes, on their control socket and the sockets of loops. It does something when a certain frame comes.

use super::super::channel::{Channel, Frame, Heard};
use super::super::kind::Kind;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than each process waits for the other.
const LATE: Duration = Duration::from_millis(5_600);
/// Time in which a process does what a frame tells it to.
const SOON: Duration = Duration::from_millis(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Old,
    New,
}

/// The deed of the relay when the frame has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Kills the process before the frame passes. The frame is lost, as if its sender had died first.
    KillBefore(Who),
    /// Kills the process at once after the frame has passed.
    KillAfter(Who),
    /// Kills the process a moment after the frame has passed.
    KillSoonAfter(Who),
    /// Passes the frame to a process that is stopped, or whose sender is, and continues it late.
    Stop(Who),
    /// Passes it likewise, and kills the process instead of continuing it.
    StopAndKill(Who),
    /// Passes the frame late.
    Delay,
    /// Kills the process late, and then passes the frame.
    DelayAndKill(Who),
    /// Passes the first bytes of the frame alone, and kills its sender.
    CutAndKill,
    /// Passes the frame twice.
    Repeat,
}

/// A step of the upgrade at which something happens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) at: Kind,
    pub(super) deed: Deed,
}

/// The two processes, and what has passed between them.
pub(super) struct Between {
    plan: Plan,
    done: AtomicBool,
    pub(super) old: Mutex<Child>,
    pub(super) new: Mutex<Child>,
    /// The new process can have read the whole of Commit.
    pub(super) commit: AtomicBool,
    /// The old process can have read a byte of Running.
    pub(super) running: AtomicBool,
    pub(super) killed_old: AtomicBool,
    pub(super) killed_new: AtomicBool,
}

impl Between {
    pub(super) fn new(plan: Plan, old: Child, new: Child) -> Arc<Self> {
        let (old, new) = (Mutex::new(old), Mutex::new(new));
        let no = || AtomicBool::new(false);
        Arc::new(Self { plan, done: no(), old, new, commit: no(), running: no(), killed_old: no(), killed_new: no() })
    }

    /// Passes frames both ways until both ends are closed.
    pub(super) fn relay(self: &Arc<Self>, old: &UnixStream, new: &UnixStream) -> Vec<JoinHandle<()>> {
        let pump = |from: &UnixStream, to: &UnixStream, sender| {
            let channel =
                |stream: &UnixStream| Channel::new(stream.try_clone().unwrap(), Duration::from_secs(600)).unwrap();
            let (own, mut from, mut to) = (self.clone(), channel(from), channel(to));
            std::thread::spawn(move || own.pump(&mut from, &mut to, sender))
        };
        vec![pump(old, new, Who::Old), pump(new, old, Who::New)]
    }

    fn pump(self: &Arc<Self>, from: &mut Channel, to: &mut Channel, sender: Who) {
        let mut loops = Vec::new();
        while let Heard::Frame(mut frame) = from.hear() {
            if frame.kind == Kind::Loops && !frame.fds.is_empty() {
                // The loops' sockets lead through here, too.
                let theirs = UnixStream::from(frame.fds.pop().unwrap());
                let (near, far) = UnixStream::pair().unwrap();
                frame.fds.push(far.into());
                loops.extend(self.relay(&theirs, &near));
            }
            if frame.kind == self.plan.at && !self.done.swap(true, Ordering::SeqCst) {
                self.act(&frame, to, sender);
            } else {
                self.pass(&frame, to);
            }
        }
        // As the kernel does it when the process's end is closed.
        let _ = to.raw().shutdown(Shutdown::Both);
        loops.into_iter().for_each(|thread| thread.join().unwrap());
    }

    fn pass(&self, frame: &Frame, to: &mut Channel) {
        // Before it arrives: nothing may follow from it unnoticed.
        match frame.kind {
            Kind::Commit => self.commit.store(true, Ordering::SeqCst),
            Kind::Running => self.running.store(true, Ordering::SeqCst),
            _ => {}
        }
        let fds: Vec<_> = frame.fds.iter().map(AsFd::as_fd).collect();
        // The other process may be gone.
        let _ = to.send(frame.kind, &frame.content, &fds);
    }

    fn act(&self, frame: &Frame, to: &mut Channel, sender: Who) {
        match self.plan.deed {
            Deed::KillBefore(who) => {
                self.kill(who);
                if who != sender {
                    self.pass(frame, to);
                }
            }
            Deed::KillAfter(who) => {
                self.pass(frame, to);
                self.kill(who);
            }
            Deed::KillSoonAfter(who) => {
                self.pass(frame, to);
                std::thread::sleep(SOON);
                self.kill(who);
            }
            Deed::Stop(who) => {
                self.signal(who, Signal::STOP);
                self.pass(frame, to);
                std::thread::sleep(LATE);
                self.signal(who, Signal::CONT);
            }
            Deed::StopAndKill(who) => {
                self.signal(who, Signal::STOP);
                self.pass(frame, to);
                std::thread::sleep(LATE);
                self.kill(who);
            }
            Deed::Delay => {
                std::thread::sleep(LATE);
                self.pass(frame, to);
            }
            Deed::DelayAndKill(who) => {
                std::thread::sleep(LATE);
                self.kill(who);
                self.pass(frame, to);
            }
            Deed::CutAndKill => {
                if frame.kind == Kind::Running {
                    self.running.store(true, Ordering::SeqCst);
                }
                let _ = to.raw().write_all(&[frame.kind as u8, 0, 0]);
                self.kill(sender);
                let _ = to.raw().shutdown(Shutdown::Both);
            }
            Deed::Repeat => {
                self.pass(frame, to);
                self.pass(frame, to);
            }
        }
    }

    pub(super) fn process(&self, who: Who) -> &Mutex<Child> {
        match who {
            Who::Old => &self.old,
            Who::New => &self.new,
        }
    }

    /// Both processes end.
    pub(super) fn end(&self) {
        for who in [Who::Old, Who::New] {
            let mut child = self.process(who).lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, who: Who, signal: Signal) {
        let number = Pid::from_child(&self.process(who).lock().unwrap());
        // It may have ended by itself.
        let _ = kill_process(number, signal);
    }

    pub(super) fn kill(&self, who: Who) {
        match who {
            Who::Old => self.killed_old.store(true, Ordering::SeqCst),
            Who::New => self.killed_new.store(true, Ordering::SeqCst),
        }
        let mut child = self.process(who).lock().unwrap();
        let _ = child.kill();
        child.wait().unwrap();
    }
}
