//! Installation of the suite, which is Python 2.7 code, below `target/xtask/autobahn` only.
//!
//! Debian 11 was the last release with Python 2.7. Its packages come from the mirrors that this machine uses, by package
//! lists of our own, and are unpacked without being installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{self, Deadline, run_logged};
use crate::setup::CA_BUNDLE;
use crate::stage::Context;
use crate::{install, paths};

const RELEASE: &str = "bullseye";
const PACKAGES: &str = "libffi7 libpython2.7 libpython2.7-dev libpython2.7-minimal libpython2.7-stdlib libssl1.1 python2.7 \
                        python2.7-dev python2.7-minimal";
/// The last versions for Python 2.7. They run from the folder that they are unpacked into.
const PIP: &[&str] = &["pip==20.3.4", "setuptools==44.0.0", "wheel==0.36.2"];
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An installed suite.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    folder: PathBuf,
}

impl Suite {
    /// Python 2.7 with the suite in its path. Its environment would break any other Python.
    fn python(&self) -> Command {
        let system = self.folder.join("python/usr");
        let mut command = Command::new(system.join("bin/python2.7"));
        command
            .env("LD_LIBRARY_PATH", system.join("lib/x86_64-linux-gnu"))
            .env("PYTHONHOME", &system)
            .env("PYTHONPATH", self.packages())
            .env("PYTHONUNBUFFERED", "1");
        command
    }

    /// The suite in one of its modes.
    pub(super) fn command(&self, mode: &str, spec: &Path) -> Command {
        let mut command = self.python();
        command.arg(paths::root().join("tests/autobahn/wstest.py")).args(["-m", mode, "-u", "0", "-s"]).arg(spec);
        command
    }

    fn packages(&self) -> PathBuf {
        self.folder.join("packages")
    }

    fn works(&self) -> bool {
        let probe = "import ssl, wsaccel.utf8validator, wsaccel.xormask, OpenSSL, autobahntestsuite.fuzzing";
        process::output(self.python().args(["-c", probe])).is_some()
    }
}

/// Installs the suite, unless that is done already.
pub(crate) fn install(context: &Context) -> Result<Suite, Failure> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Failure::Skipped("the suite's Python 2.7 packages exist for x86_64 only".to_owned()));
    }
    let suite = Suite { folder: paths::own("autobahn/suite") };
    let requirements = fs::read_to_string(paths::root().join("tests/autobahn/requirements.txt"))?;
    let recipe = format!("{RELEASE} {PACKAGES} {PIP:?}\n{requirements}");
    install::once(
        &suite.folder,
        &recipe,
        |_| suite.works(),
        |folder| {
            python(folder, context.deadline)?;
            pip(&suite, context.deadline)?;
            packages(&suite, context.deadline)
        },
    )?;
    Ok(suite)
}

/// Unpacks Python 2.7 into `python`.
fn python(folder: &Path, deadline: Deadline) -> Outcome {
    let apt = folder.join("apt");
    let downloads = apt.join("downloads");
    for part in ["lists/partial", "cache/archives/partial", "sources", "downloads"] {
        fs::create_dir_all(apt.join(part))?;
    }
    fs::write(apt.join("sources").join("old.list"), sources()?)?;
    let at = apt.display();
    let settings = format!(
        "Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{at}/sources\";\nDir::State::lists \"{at}/lists\";\n\
         Dir::Cache \"{at}/cache\";\nAPT::Sandbox::User \"\";\nAcquire::Check-Valid-Until \"false\";\n\
         Acquire::Languages \"none\";\nAPT::Update::Error-Mode \"any\";\nAcquire::Retries \"3\";\n"
    );
    fs::write(apt.join("apt.conf"), settings)?;
    let apt_get = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("APT_CONFIG", apt.join("apt.conf")).current_dir(&downloads);
        command
    };
    run_logged(&mut apt_get(&["update"]), &paths::log("autobahn-apt-update"), deadline)?;
    let mut download = apt_get(&["download"]);
    run_logged(download.args(PACKAGES.split_whitespace()), &paths::log("autobahn-apt-download"), deadline)?;
    for file in fs::read_dir(&downloads)? {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(file?.path()).arg(folder.join("python"));
        run_logged(&mut unpack, &paths::log("autobahn-unpack"), deadline)?;
    }
    fs::remove_dir_all(&apt)?;
    Ok(())
}

/// This machine's Debian mirrors, at the old release.
fn sources() -> Result<String, Failure> {
    let skip = |why: &str| Failure::Skipped(format!("the suite needs Debian's packages: {why}"));
    let format = ["indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Identifier: Packages"];
    let list = process::output(Command::new("apt-get").args(format)).ok_or_else(|| skip("there is no apt-get"))?;
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = about.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.filter(|_| about.lines().any(|line| line == "ID=debian"));
    let codename = codename.ok_or_else(|| skip("this is not Debian"))?;
    let sources = old_sources(&list, codename);
    if sources.is_empty() { Err(skip("no source of this machine is Debian's own")) } else { Ok(sources) }
}

/// Turns lines of `URI RELEASE COMPONENT` into the same sources at [`RELEASE`].
fn old_sources(list: &str, codename: &str) -> String {
    let signed = if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
    let mut lines = std::collections::BTreeSet::new();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [uri, release, "main"] = words[..]
            && let Some(suffix @ ("" | "-security")) = release.strip_prefix(codename)
        {
            lines.insert(format!("deb {signed}{uri} {RELEASE}{suffix} main\n"));
        }
    }
    lines.into_iter().collect()
}

/// Fetches the last pip for Python 2.7 with today's.
fn pip(suite: &Suite, deadline: Deadline) -> Outcome {
    let today = suite.folder.join("python3");
    let log = paths::log("autobahn-pip");
    run_logged(Command::new("python3").args(["-m", "venv"]).arg(&today), &log, deadline)?;
    let wheels = suite.folder.join("wheels");
    let mut download = Command::new(today.join("bin/pip"));
    download.args(["download", "--no-deps", "--python-version", "27", "--only-binary=:all:", "--implementation", "py"]);
    download.args(["--abi", "none", "--platform", "any", "-d"]).arg(&wheels).args(PIP);
    run_logged(&mut download, &log, deadline)?;
    fs::create_dir_all(suite.packages())?;
    for wheel in fs::read_dir(&wheels)? {
        let mut unpack = Command::new("python3");
        unpack.args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(suite.packages());
        run_logged(&mut unpack, &log, deadline)?;
    }
    fs::remove_dir_all(&today)?;
    fs::remove_dir_all(&wheels)?;
    Ok(())
}

/// Installs the suite and its dependencies.
fn packages(suite: &Suite, deadline: Deadline) -> Outcome {
    let headers = suite.folder.join("python/usr/include");
    let mut install = suite.python();
    install.args(["-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-use-pep517"]);
    install.arg("-t").arg(suite.packages()).arg("-r").arg(paths::root().join("tests/autobahn/requirements.txt"));
    install.env("CFLAGS", format!("-O2 -I{0}/python2.7 -I{0}", headers.display()));
    if Path::new(CA_BUNDLE).exists() && std::env::var_os("PIP_CERT").is_none() {
        install.env("PIP_CERT", CA_BUNDLE);
    }
    run_logged(&mut install, &paths::log("autobahn-packages"), deadline)?;
    // zope is a namespace package: its .pth file is not read outside site-packages.
    fs::write(suite.packages().join("zope/__init__.py"), "")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_debians_own_sources_are_taken_to_the_old_release() {
        let list = "mirror:/debian/ bookworm main\nmirror:/debian/ bookworm-updates main\nmirror:/security/ bookworm-security main\n\
                    other:/node nodistro main\nother:/cloud cloud-bookworm main\nmirror:/debian/ bookworm contrib\n";
        let sources = old_sources(list, "bookworm");
        let ends: Vec<&str> = sources.lines().filter_map(|line| line.rsplit_once('/').map(|(_, end)| end)).collect();
        assert_eq!(ends, [" bullseye main", " bullseye-security main"]);
    }
}
