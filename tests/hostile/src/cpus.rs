//! The machine's CPUs, divided between a server with its honest clients and their attackers.

use crate::outcome::Result;
use rustix::thread::{CpuSet, sched_setaffinity};
use tautline::layers::io::machine;

/// One CPU for the server's loop and the honest clients, and the others for attackers. Those of the internet have CPUs of their
/// own too.
///
/// Priorities alone do not do this. Linux 6.18 let attackers of idle priority run for 25 ms on a CPU where an honest client was
/// ready to run (`docs/experiments.md`, "Attackers of low priority").
pub(crate) struct Cpus {
    server: CpuSet,
    attackers: CpuSet,
}

impl Cpus {
    /// Where `taut serve --pin` has its first loop, and the rest. With one CPU everybody has it.
    pub(crate) fn divide() -> Result<Self> {
        let all = machine::cpus()?;
        let set = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|&cpu| set.set(cpu));
            set
        };
        let (first, rest) = all.split_at(1.min(all.len()));
        Ok(Self { server: set(first), attackers: set(if rest.is_empty() { first } else { rest }) })
    }

    /// Moves the calling thread to the server's CPU.
    pub(crate) fn join_server(&self) -> Result<()> {
        Ok(sched_setaffinity(None, &self.server)?)
    }

    /// Moves the calling thread away from the server's CPU.
    pub(crate) fn leave_server(&self) -> Result<()> {
        Ok(sched_setaffinity(None, &self.attackers)?)
    }
}
