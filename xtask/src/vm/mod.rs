//! Tests that need other kernels than this one, in virtual machines: Debian's packaged cloud kernels, emulated by QEMU. One is
//! of this machine's release, the other a newer one, whose TLS takes new keys.
//!
//! The machine boots from an initramfs that holds the kernel's modules, busybox, and test programs with the libraries that
//! they are linked to, the same that `cargo test` runs here, and `taut`, which one of them starts. It needs neither privileges
//! nor virtualisation by the processor.

mod image;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cargo::cargo;
use crate::process::{self, Deadline, Running, run_logged, show_tail};
use crate::stage::{Context, Failure, Outcome, is_root};
use crate::{install, paths};
use image::Image;

/// What names the newest kernel's package.
const KERNEL: &str = "linux-image-cloud-amd64";

/// Where a kernel comes from.
struct Origin {
    /// Of its folder.
    name: &'static str,
    /// The suite of this machine's mirror, where it is not the machine's own.
    suite: Option<&'static str>,
    /// What the tests insist on.
    wanted: &'static str,
}

const ORIGINS: [Origin; 2] = [
    Origin { name: "vm/packages", suite: None, wanted: "required" },
    Origin { name: "vm/backports", suite: Some("trixie-backports"), wanted: "rekeys" },
];

/// The keys of Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// For the script that prepares the machine.
const BUSYBOX: &str = "busybox-static";

/// Modules that the tests need, with what these need, wherever it stands in the list.
const MODULES: &[&str] = &[
    "tls",
    "aesni-intel",
    "chacha",
    "chacha-x86_64",
    "chacha20poly1305",
    "ccm",
    "cryptd",
    "crypto_simd",
    "ctr",
    "gcm",
    "gf128mul",
    "ghash-clmulni-intel",
    "ghash-generic",
    "libchacha",
    "libpoly1305",
    "poly1305-x86_64",
    "poly1305_generic",
    "chacha_generic",
    "seqiv",
];

/// The machine's last line, behind which the tests' exit status stands. Without it, the machine died.
const MARKER: &str = "TAUTLINE-VM-EXIT";

/// A machine that takes longer has hung; one takes a minute, several where other work keeps the processors.
const PATIENCE: Duration = Duration::from_secs(400);

/// Longest that a download may take.
const DOWNLOAD: Duration = Duration::from_secs(300);

/// Lines of the console that are shown where something failed.
const SHOWN: usize = 60;

/// Kernel TLS, which most kernels have as a module and some machines have not at all.
pub(crate) fn test(context: &Context) -> Outcome {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Failure::Skipped("the machine is one with an x86-64 processor under Linux".to_owned()));
    }
    if !process::succeeds("qemu-system-x86_64", &["--version"]) {
        return Err(Failure::Skipped(
            "there is no qemu-system-x86_64; `cargo xtask setup` names its package".to_owned(),
        ));
    }
    let programs = Programs::build(context)?;
    for origin in &ORIGINS {
        let folder = paths::own(origin.name);
        match origin.install(context, &folder) {
            Err(Failure::Skipped(reason)) if origin.suite.is_some() => {
                context.skip("kernel TLS that takes new keys", &reason);
                continue;
            }
            installed => installed?,
        }
        let initramfs = paths::own("vm/initramfs");
        let kernel = image(&folder, origin.wanted, &programs, &initramfs)?;
        boot(context.deadline, &kernel, &initramfs)?;
    }
    Ok(())
}

impl Origin {
    /// Unpacks the kernel, and where it is the machine's own busybox, into `folder`.
    fn install(&self, context: &Context, folder: &Path) -> Outcome {
        let here = |folder: &Path| kernel_in(folder).is_some();
        install::once(folder, "3", here, |folder| {
            let log = paths::log("vm-download");
            let mut packages = self.packages(context, folder, false)?;
            let download = |packages: &[String]| {
                let mut download = self.apt("apt-get", folder);
                download.arg("download").args(packages).current_dir(folder);
                run_logged(&mut download, &log, context.deadline.within(DOWNLOAD))
            };
            let mut downloaded = download(&packages);
            if downloaded.is_err() && is_root() {
                // The mirror may have newer ones only.
                for package in downloads(folder)? {
                    fs::remove_file(package)?;
                }
                packages = self.packages(context, folder, true)?;
                downloaded = download(&packages);
            }
            if downloaded.is_err() {
                return Err(Failure::Failed(format!(
                    "apt cannot download {}: is its mirror reachable, and are the lists of packages new (`apt-get update`)?",
                    packages.join(", ")
                )));
            }
            for package in downloads(folder)? {
                let mut unpack = Command::new("dpkg");
                run_logged(unpack.arg("-x").arg(&package).arg(folder), &log, context.deadline)?;
                fs::remove_file(package)?;
            }
            Ok(())
        })
    }

    /// The packages to unpack, by new lists if asked for.
    fn packages(&self, context: &Context, folder: &Path, anew: bool) -> Result<Vec<String>, Failure> {
        if let Some(suite) = self.suite {
            let mirror = mirror().ok_or_else(|| Failure::Skipped("apt names no mirror of Debian".to_owned()))?;
            fs::create_dir_all(folder.join("apt/lists/partial"))?;
            fs::write(folder.join("apt/sources.list"), format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"))?;
        }
        let mut packages = if anew || self.suite.is_some() { None } else { self.newest_kernel(folder) };
        if packages.is_none() && (self.suite.is_some() || is_root()) {
            // The lists of packages may be those of an image that is older than its mirror.
            let mut update = self.apt("apt-get", folder);
            let deadline = context.deadline.within(DOWNLOAD);
            let updated = run_logged(update.arg("update"), &paths::log("vm-apt"), deadline);
            packages = updated.ok().and_then(|()| self.newest_kernel(folder));
        }
        let mut packages = packages.ok_or_else(|| {
            Failure::Skipped(format!(
                "apt knows no {KERNEL}: this takes Debian (bookworm or newer) with its package lists (`apt-get update`), \
                 and its mirror"
            ))
        })?;
        if self.suite.is_none() {
            packages.push(BUSYBOX.to_owned());
        }
        Ok(packages)
    }

    /// The package that [`KERNEL`] stands for, and those that it is split into.
    fn newest_kernel(&self, folder: &Path) -> Option<Vec<String>> {
        let depends = |package: &str| {
            let listed = process::output(self.apt("apt-cache", folder).args(["depends", package]))?;
            let names = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
            Some(names.map(str::to_owned).collect::<Vec<_>>())
        };
        let image = depends(KERNEL)?.into_iter().find(|name| name.starts_with("linux-image-"))?;
        let parts = depends(&image)?;
        let is_part = |name: &String| ["linux-binary-", "linux-modules-"].iter().any(|part| name.starts_with(part));
        Some(parts.into_iter().filter(is_part).chain([image]).collect())
    }

    /// A command of apt's that looks only at this origin, whose lists lie in `folder`.
    fn apt(&self, program: &str, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3"]);
        if self.suite.is_some() {
            let apt = folder.join("apt");
            for (option, at) in
                [("Dir::Etc::sourcelist", "sources.list"), ("Dir::State::lists", "lists"), ("Dir::Cache", "")]
            {
                command.arg("-o").arg(format!("{option}={}", apt.join(at).display()));
            }
            command.args(["-o", "Dir::Etc::sourceparts=-"]);
        }
        command
    }
}

/// Where this machine's packages come from, but for those that mend holes.
fn mirror() -> Option<String> {
    let mut list = Command::new("apt-get");
    list.args(["indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]);
    let listed = process::output(&mut list)?;
    let (uri, _) =
        listed.lines().filter_map(|line| line.split_once(' ')).find(|(_, release)| !release.contains('-'))?;
    Some(uri.to_owned())
}

/// Packages as they are downloaded.
fn downloads(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "deb")).collect())
}

/// The kernel among unpacked packages.
fn kernel_in(folder: &Path) -> Option<PathBuf> {
    find(folder, &|name| name == "vmlinuz" || name.starts_with("vmlinuz-"))
}

/// What runs in the machine.
struct Programs {
    /// Tests of the library.
    library: PathBuf,
    /// Tests of the program, and the program, which they start from where it lies here.
    program: PathBuf,
    taut: PathBuf,
}

impl Programs {
    /// Builds them.
    fn build(context: &Context) -> Result<Self, Failure> {
        let packages = ["-p", "tautline", "-p", "tautline-cli", "--features", "tautline/openssl,tautline-cli/openssl"];
        let tests = ["--test", "ktls", "--test", "program"];
        fs::create_dir_all(paths::own("vm"))?;
        let list = paths::own("vm/build.json");
        let mut command = cargo(&["test", "--locked", "--no-run", "--message-format=json"]);
        command.args(packages).args(tests);
        let name = "cargo test --test ktls --test program --no-run";
        eprintln!("$ {name}");
        let status = Running::start(command.stdout(fs::File::create(&list)?))?.wait(context.deadline)?;
        if !status.is_some_and(|status| status.success()) {
            return Err(Failure::Failed(format!("`{name}` failed")));
        }
        let text = fs::read_to_string(&list)?;
        let built = |name: &str| {
            executable(&text, name).ok_or_else(|| Failure::Failed(format!("cargo does not say where `{name}` is")))
        };
        Ok(Self { library: built("ktls")?, program: built("program")?, taut: built("taut")? })
    }
}

/// Where an executable is, by what cargo says.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    artifacts
        .filter(|artifact| artifact["target"]["name"] == name)
        .find_map(|artifact| artifact["executable"].as_str().map(PathBuf::from))
}

/// Makes the initramfs and says where the kernel is.
fn image(packages: &Path, wanted: &str, programs: &Programs, initramfs: &Path) -> Result<PathBuf, Failure> {
    let kernel = kernel_in(packages).ok_or_else(|| Failure::Failed("the kernel's package has no kernel".to_owned()))?;
    let mut image = Image::default();
    for folder in ["proc", "sys", "dev", "tmp", "modules"] {
        image.folder(folder);
    }
    image.file("bin/busybox", &fs::read(paths::own(ORIGINS[0].name).join("bin/busybox"))?);
    for module in MODULES {
        // Debian's newer releases pack them; insmod unpacks those too.
        let is_it = |name: &str| name.strip_prefix(module).is_some_and(|rest| rest.starts_with(".ko"));
        let file = find(packages, &is_it);
        let Some(file) = file else { continue };
        image.file(&format!("modules/{module}"), &fs::read(file)?);
    }
    let taut = programs.taut.to_string_lossy();
    let places = [
        (&programs.library, "library"),
        (&programs.program, "program"),
        (&programs.taut, taut.trim_start_matches('/')),
    ];
    let mut linked = Vec::new();
    for (program, place) in places {
        image.file(place, &fs::read(stripped(program)?)?);
        linked.extend(libraries(program)?);
    }
    linked.sort();
    linked.dedup();
    for library in linked {
        image.file(library.trim_start_matches('/'), &fs::read(&library)?);
    }
    image.file("init", INIT.replace("WANTED", wanted).as_bytes());
    fs::write(initramfs, image.finish())?;
    Ok(kernel)
}

/// A copy of the program without what only debuggers read, which is most of it; the program itself where that cannot be.
fn stripped(program: &Path) -> Result<PathBuf, Failure> {
    let copy = paths::own("vm/test");
    let made = process::output(Command::new("strip").arg("-o").arg(&copy).arg(program)).is_some();
    Ok(if made { copy } else { program.to_path_buf() })
}

/// The libraries that a program is linked to, and what loads them.
fn libraries(program: &Path) -> Result<Vec<String>, Failure> {
    let listed = process::output(Command::new("ldd").arg(program));
    let listed = listed.ok_or_else(|| Failure::Failed(format!("`ldd {}` failed", program.display())))?;
    Ok(paths_in(&listed))
}

/// The paths in what ldd(1) says: `libc.so.6 => /lib/libc.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn paths_in(listed: &str) -> Vec<String> {
    let words = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.map(str::to_owned).collect()
}

/// The first file below `folder` with such a name.
fn find(folder: &Path, is_it: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries.iter().find_map(|path| match path.is_dir() {
        true => find(path, is_it),
        false => path.file_name().and_then(|name| name.to_str()).is_some_and(is_it).then(|| path.clone()),
    })
}

/// What the machine does. Modules go in in several rounds, until each has those that it needs. Little room in its sockets has
/// the tests wait for more of it.
const INIT: &str = "\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox ip link set lo up
echo 4096 16384 65536 > /proc/sys/net/ipv4/tcp_wmem
echo Linux $(/bin/busybox uname -r)
for round in 1 2 3 4 5 6; do
    for module in /modules/*; do /bin/busybox insmod $module 2>/dev/null; done
done
/bin/busybox ln -s busybox /bin/kill
export PATH=/bin TAUTLINE_KTLS=WANTED RUST_BACKTRACE=1
status=0
/library --test-threads 1 </dev/null 2>&1 || status=$?
/program --test-threads 1 ktls:: </dev/null 2>&1 || status=$?
echo TAUTLINE-VM-EXIT $status
/bin/busybox cat /proc/net/tls_stat
/bin/busybox poweroff -f
";

/// Boots the machine, waits until it is off, and reads what it said.
fn boot(deadline: Deadline, kernel: &Path, initramfs: &Path) -> Outcome {
    let mut command = Command::new("qemu-system-x86_64");
    command.args([
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-smp",
        "2",
        "-m",
        "1024",
        "-nodefaults",
        "-display",
        "none",
    ]);
    command.args(["-serial", "stdio", "-no-reboot", "-append", "console=ttyS0 panic=-1 quiet random.trust_cpu=on"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    let console = paths::log("vm-console");
    eprintln!("$ qemu-system-x86_64 -kernel {}", kernel.display());
    let mut machine = Running::start_logged(&mut command, &console)?;
    let ended = machine.wait(deadline.within(PATIENCE))?.is_some();
    drop(machine);
    let said = String::from_utf8_lossy(&fs::read(&console)?).replace('\r', "");
    let verdict = verdict(&said);
    if verdict.is_err() || !ended {
        show_tail(&console, SHOWN);
    }
    let passed = verdict?;
    if !ended {
        return Err(Failure::Failed(format!("the machine was not off after {} s and was stopped", PATIENCE.as_secs())));
    }
    eprintln!("{passed}");
    Ok(())
}

/// What the console says of the tests: their own last lines where all of them passed.
fn verdict(said: &str) -> Result<String, Failure> {
    let status = said.lines().find_map(|line| line.strip_prefix(MARKER)).map(str::trim);
    let good = |line: &&str| line.starts_with("test result: ok.") && !line.contains(" 0 passed");
    let results: Vec<&str> = said.lines().filter(good).collect();
    match (status, results.as_slice()) {
        (Some("0"), [library, program]) => {
            let kernel = said.lines().find(|line| line.starts_with("Linux ")).unwrap_or("an unknown kernel");
            Ok(format!("under {kernel}: {library}\nunder {kernel}, of the program: {program}"))
        }
        (Some("0"), _) => Err(Failure::Failed("the machine did not run all tests".to_owned())),
        (Some(status), _) => Err(Failure::Failed(format!("the tests in the machine failed ({status})"))),
        (None, _) => Err(Failure::Failed("the machine stopped before the tests had ended".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_ran_and_passed_count() {
        let good = "Linux 6.1\ntest result: ok. 16 passed; 0 failed\ntest result: ok. 2 passed; 0 failed\nTAUTLINE-VM-EXIT 0\n";
        let told = verdict(good).unwrap();
        assert!(told.starts_with("under Linux 6.1: test result: ok. 16 passed"), "{told}");
        assert!(told.contains("of the program: test result: ok. 2 passed"), "{told}");
        for bad in [
            "",
            "Kernel panic - not syncing",
            "test result: ok. 16 passed; 0 failed\n",
            "TAUTLINE-VM-EXIT 0\n",
            "test result: ok. 16 passed; 0 failed\nTAUTLINE-VM-EXIT 0\n",
            "test result: ok. 16 passed; 0 failed\ntest result: ok. 0 passed; 0 failed\nTAUTLINE-VM-EXIT 0\n",
            "test result: FAILED. 15 passed; 1 failed\nTAUTLINE-VM-EXIT 101\n",
        ] {
            assert!(verdict(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn paths_of_libraries() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(paths_in(listed), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
