use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use tautline::layers::tls_records::{Suite, aead};

/// CPU features that matter for cryptography, masks and checks, by the kernel's names (x86, then Arm).
const FEATURES: &str = "aes pclmulqdq vaes vpclmulqdq sha_ni avx2 avx512f avx512ifma bmi2 adx rdrand constant_tsc \
                        asimd pmull sha2 sha512 sve";

/// Hardware and software of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the CPU.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: usize,
    /// Architecture.
    pub arch: String,
    /// Release of the Linux kernel.
    pub kernel: String,
    /// Features of the CPU that matter here, by the kernel's names.
    pub features: Vec<String>,
    /// Providers of the AEADs of records opened and sealed in place, by AEAD.
    pub aead: BTreeMap<String, String>,
    /// RAM in bytes.
    pub memory: u64,
    /// Frequency governor, if there is one.
    pub governor: Option<String>,
    /// Name of the hypervisor, or `unknown`; `None` if this is not a virtual machine.
    pub hypervisor: Option<String>,
    /// Runnable processes, averaged over the last minute. A busy machine measures badly.
    pub load_1min: Option<f64>,
    /// Versions of tautline and of the libraries that were built in.
    pub libraries: BTreeMap<String, String>,
    /// Commit of the build, or `unknown`.
    pub commit: String,
    /// Compiler of the build.
    pub rustc: String,
    /// Profile of the build, such as `dist`; `unknown` in results of older builds.
    #[serde(default = "unknown")]
    pub profile: String,
    /// Time of the measurement, UTC (RFC 3339).
    pub date: String,
}

impl Machine {
    /// This machine at this time.
    #[must_use]
    pub fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = flags(&cpuinfo);
        let libraries = env!("TAUTLINE_LIBRARIES").split(',').filter_map(|pair| pair.split_once('='));
        Self {
            cpu: field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "CPU part")).unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            arch: std::env::consts::ARCH.to_owned(),
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
            features: FEATURES.split(' ').filter(|name| flags.contains(name)).map(str::to_owned).collect(),
            aead: {
                aead::settle();
                Suite::ALL.map(|suite| (suite.aead_name().to_owned(), aead::summary(suite))).into()
            },
            memory: fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory(&text)).unwrap_or(0),
            governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            hypervisor: flags.contains(&"hypervisor").then(|| {
                first_line("/sys/hypervisor/type")
                    .or_else(|| first_line("/sys/class/dmi/id/sys_vendor"))
                    .unwrap_or_else(|| "unknown".to_owned())
            }),
            load_1min: first_line("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            libraries: [("tautline", env!("CARGO_PKG_VERSION"))]
                .into_iter()
                .chain(libraries)
                .map(|(name, version)| (name.to_owned(), version.to_owned()))
                .collect(),
            commit: env!("TAUTLINE_COMMIT").to_owned(),
            rustc: env!("TAUTLINE_RUSTC").to_owned(),
            profile: env!("TAUTLINE_PROFILE").to_owned(),
            date: format!("{:.0}", jiff::Timestamp::now()),
        }
    }

    /// Whether the build left out the link-time optimisation of the program that is shipped.
    #[must_use]
    pub fn is_quick_build(&self) -> bool {
        self.profile == "release"
    }

    /// Whether the CPU has a feature, by the kernel's name; knows only features that results list.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.features.iter().any(|feature| feature == name)
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let libraries: Vec<String> = self.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
        writeln!(f, "{}, {} cores, {:.1} GiB", self.cpu, self.cores, self.memory as f64 / f64::from(1 << 30))?;
        write!(f, "Linux {} {}", self.kernel, self.arch)?;
        if let Some(hypervisor) = &self.hypervisor {
            write!(f, ", virtual machine ({hypervisor})")?;
        }
        if let Some(governor) = &self.governor {
            write!(f, ", governor {governor}")?;
        }
        if let Some(load) = self.load_1min {
            write!(f, ", load {load:.1}")?;
        }
        writeln!(f)?;
        let aead: Vec<String> = self.aead.iter().map(|(name, by)| format!("{name} {by}")).collect();
        writeln!(f, "CPU features: {}; AEAD: {}", self.features.join(" "), aead.join(", "))?;
        write!(f, "{}, commit {}, profile {}, {}", libraries.join(", "), self.commit, self.profile, self.date)
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Value of the first `key : value` in /proc/cpuinfo.
fn field<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

/// CPU features: `flags` on x86, `Features` on Arm.
fn flags(cpuinfo: &str) -> Vec<&str> {
    let line = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features"));
    line.unwrap_or_default().split_ascii_whitespace().collect()
}

fn memory(meminfo: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_formats_of_both_architectures() {
        let x86 = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu aes avx2\n";
        assert_eq!((field(x86, "model name"), flags(x86)), (Some("Some CPU @ 2 GHz"), vec!["fpu", "aes", "avx2"]));
        assert_eq!(flags("Features\t: fp asimd aes\n"), ["fp", "asimd", "aes"]);
        assert_eq!(memory("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2 << 20));
    }

    #[test]
    fn describes_this_machine() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && machine.memory > 0 && machine.kernel != "unknown");
        assert!(machine.rustc.starts_with("rustc"), "{}", machine.rustc);
        assert!(machine.date.len() == "2026-01-31T23:59:59Z".len() && machine.date.ends_with('Z'), "{}", machine.date);
        assert!(machine.libraries.contains_key("tautline"));
        assert!(machine.to_string().lines().count() == 4);
    }

    #[test]
    fn a_build_knows_its_profile_and_older_results_have_none() {
        let here = Machine::here();
        assert_ne!(here.profile, "unknown");
        assert_eq!(here.is_quick_build(), here.profile == "release");
        let mut stored = serde_json::to_value(here).unwrap();
        stored.as_object_mut().unwrap().remove("profile");
        let older: Machine = serde_json::from_value(stored).unwrap();
        assert!(older.profile == "unknown" && !older.is_quick_build());
    }
}
