use crate::families::Families;
use prometheus_client::registry::Unit;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use std::fmt::Error;
use std::fs;
use std::sync::LazyLock;

/// Clock ticks per second in `/proc`: 100 on every architecture of Linux.
const TICKS: f64 = 100.0;

/// The time of the boot, since 1970. It is read once: the kernel writes all of `/proc/stat` for it.
static BOOT: LazyLock<Option<f64>> = LazyLock::new(|| boot(&fs::read_to_string("/proc/stat").ok()?));

/// The resources that this process uses, under the names that all clients of Prometheus give them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ProcessFigures {
    /// CPU time in seconds, in user space and in the kernel.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: f64,
    /// Threads.
    pub threads: f64,
    /// Open files, if the kernel tells their number (from Linux 6.2 on).
    pub open_files: Option<f64>,
    /// The limit of open files, if there is one.
    pub max_files: Option<f64>,
    /// When the process began, in seconds since 1970.
    pub began: Option<f64>,
}

impl ProcessFigures {
    /// Reads the figures of this process; `None` if `/proc` is not there.
    #[must_use]
    pub fn read() -> Option<Self> {
        let mut figures = Self::parse(&fs::read_to_string("/proc/self/stat").ok()?, page_size() as f64)?;
        // The kernel's own count. To list the folder takes milliseconds with thousands of connections.
        let open = fs::metadata("/proc/self/fd").map_or(0, |folder| folder.len());
        figures.open_files = (open > 0).then_some(open as f64);
        figures.max_files = getrlimit(Resource::Nofile).current.map(|limit| limit as f64);
        figures.began = figures.began.zip(*BOOT).map(|(began, boot)| began + boot);
        Some(figures)
    }

    /// Reads `/proc/self/stat`. The time of the begin is since boot.
    fn parse(stat: &str, page: f64) -> Option<Self> {
        // The name of the program, in parentheses, may have blanks and parentheses of its own.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        // proc_pid_stat(5) numbers the fields from 1; the first one here is the third.
        let field = |number: usize| fields.get(number - 3)?.trim().parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS,
            threads: field(20)?,
            began: Some(field(22)? / TICKS),
            resident_bytes: field(24)? * page,
            ..Self::default()
        })
    }

    pub(crate) fn encode(&self, families: &mut Families<'_>) -> Result<(), Error> {
        families.process_seconds("process_cpu", "CPU time in user space and in the kernel", self.cpu_seconds)?;
        let bytes = Some(&Unit::Bytes);
        families.process_gauge("process_resident_memory", "Resident memory", bytes, self.resident_bytes)?;
        families.process_gauge("process_threads", "Threads", None, self.threads)?;
        if let Some(open) = self.open_files {
            families.process_gauge("process_open_fds", "Open files", None, open)?;
        }
        if let Some(max) = self.max_files {
            families.process_gauge("process_max_fds", "Limit of open files", None, max)?;
        }
        let help = "Time of the begin, since 1970";
        self.began
            .map_or(Ok(()), |began| families.process_gauge("process_start_time", help, Some(&Unit::Seconds), began))
    }
}

/// The time of the boot in `/proc/stat`.
fn boot(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ProcessFigures, boot};

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let stat = "42 (a ) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 7 0 1234 99999 300 18446744073709551615 1";
        let figures = ProcessFigures::parse(stat, 16_384.0).unwrap();
        assert_eq!((figures.cpu_seconds, figures.threads, figures.began), (2.0, 7.0, Some(12.34)));
        assert_eq!(figures.resident_bytes, 300.0 * 16_384.0);
        assert_eq!(ProcessFigures::parse("42 (short) S 1", 4096.0), None);
        assert_eq!(boot("cpu  1 2\nbtime 1700000000\nprocesses 7\n"), Some(1_700_000_000.0));
    }

    #[test]
    fn this_process_has_figures() {
        let figures = ProcessFigures::read().unwrap();
        assert!(figures.resident_bytes > 1e5 && figures.threads >= 1.0, "{figures:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - figures.began.unwrap();
        assert!(age > -2.0 && age < 86_400.0, "{age}");
    }
}
