//! Tests that need other kernels than this one, in virtual machines: Debian's packaged cloud kernels, emulated by QEMU. One
//! is of this machine's release. The other is newer: its TLS takes new keys.
//!
//! The machine boots from an initramfs with the kernel's modules, busybox, two test programs of `cargo test`, `taut`, and
//! the libraries of these. It needs neither privileges nor virtualisation by the processor.

mod image;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cargo::{everything, executables};
use crate::outcome::{Failure, Outcome};
use crate::process::{self, Deadline, Running, run_logged, show_tail};
use crate::stage::{Context, is_root};
use crate::{install, paths};
use image::Image;

/// The package that depends on the newest kernel.
const KERNEL: &str = "linux-image-cloud-amd64";

/// The origin of a kernel.
struct Origin {
    /// The name of its folder below `target/xtask`.
    name: &'static str,
    /// The suite of this machine's mirror, if it is not the machine's own.
    suite: Option<&'static str>,
    /// The ability that the tests require.
    wanted: &'static str,
}

const ORIGINS: [Origin; 2] = [
    Origin { name: "vm/packages", suite: None, wanted: "required" },
    Origin { name: "vm/backports", suite: Some("trixie-backports"), wanted: "rekeys" },
];

/// The keys of Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The package of the shell that runs [`INIT`].
const BUSYBOX: &str = "busybox-static";

/// Modules that the tests need, and modules that these need, in any order.
const MODULES: &str = "tls aesni-intel chacha chacha-x86_64 chacha20poly1305 ccm cryptd crypto_simd ctr gcm gf128mul \
                       ghash-clmulni-intel ghash-generic libchacha libpoly1305 poly1305-x86_64 poly1305_generic \
                       chacha_generic seqiv";

/// The machine's last line begins so, and ends with the exit status of the tests. Without this line, the machine died.
const MARKER: &str = "TAUTLINE-VM-EXIT";

/// Longest that a machine may take. It takes a minute, or several on a busy or slow machine.
const PATIENCE: Duration = Duration::from_secs(400);

/// Longest that a download may take.
const DOWNLOAD: Duration = Duration::from_secs(300);

/// Lines of the console that are printed after a failure.
const SHOWN: usize = 60;

/// Tests kernel TLS, which many machines lack.
pub(crate) fn test(context: &Context) -> Outcome {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err(Failure::Skipped("it is set up for x86-64 Linux only".to_owned()));
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
    /// Unpacks the kernel into `folder`, and busybox with the machine's own kernel.
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
                // The mirror may have dropped these versions for newer ones.
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

    /// The packages to unpack. If `anew`, their lists are fetched first.
    fn packages(&self, context: &Context, folder: &Path, anew: bool) -> Result<Vec<String>, Failure> {
        if let Some(suite) = self.suite {
            let mirror = mirror().ok_or_else(|| Failure::Skipped("apt names no mirror of Debian".to_owned()))?;
            fs::create_dir_all(folder.join("apt/lists/partial"))?;
            fs::write(folder.join("apt/sources.list"), format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"))?;
        }
        let mut packages = if anew || self.suite.is_some() { None } else { self.newest_kernel(folder) };
        if packages.is_none() && (self.suite.is_some() || is_root()) {
            // The lists may be older than the mirror.
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

    /// The package that [`KERNEL`] depends on, and the packages that it is split into.
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

    /// An apt command for this origin alone, with its lists in `folder`.
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

/// The mirror of this machine's packages, other than security updates.
fn mirror() -> Option<String> {
    let mut list = Command::new("apt-get");
    list.args(["indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]);
    let listed = process::output(&mut list)?;
    let (uri, _) =
        listed.lines().filter_map(|line| line.split_once(' ')).find(|(_, release)| !release.contains('-'))?;
    Some(uri.to_owned())
}

/// The downloaded packages.
fn downloads(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    Ok(files.into_iter().filter(|file| file.extension().is_some_and(|extension| extension == "deb")).collect())
}

/// The kernel among unpacked packages.
fn kernel_in(folder: &Path) -> Option<PathBuf> {
    find(folder, &|name| name == "vmlinuz" || name.starts_with("vmlinuz-"))
}

/// The programs that run in the machine.
struct Programs {
    /// Tests of the library.
    library: PathBuf,
    /// Tests of `taut`.
    program: PathBuf,
    /// The path of `taut`, from which the tests start it.
    taut: PathBuf,
}

impl Programs {
    fn build(context: &Context) -> Result<Self, Failure> {
        let build = everything(&["test", "--no-run", "--test", "ktls", "--test", "program"]);
        let [library, program, taut] = executables(context, build, ["ktls", "program", "taut"])?;
        Ok(Self { library, program, taut })
    }
}

/// Makes the initramfs, and returns the path of the kernel.
fn image(packages: &Path, wanted: &str, programs: &Programs, initramfs: &Path) -> Result<PathBuf, Failure> {
    let kernel = kernel_in(packages).ok_or_else(|| Failure::Failed("the kernel's package has no kernel".to_owned()))?;
    let mut image = Image::default();
    for folder in ["proc", "sys", "dev", "tmp", "modules"] {
        image.folder(folder);
    }
    image.file("bin/busybox", &fs::read(paths::own(ORIGINS[0].name).join("bin/busybox"))?);
    for module in MODULES.split_whitespace() {
        // Newer releases of Debian compress modules, which insmod understands.
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

/// The path of a copy without debug information, or the program's own if it cannot be stripped.
fn stripped(program: &Path) -> Result<PathBuf, Failure> {
    let copy = paths::own("vm/test");
    let made = process::output(Command::new("strip").arg("-o").arg(&copy).arg(program)).is_some();
    Ok(if made { copy } else { program.to_path_buf() })
}

/// The libraries that a program is linked to, and their loader.
fn libraries(program: &Path) -> Result<Vec<String>, Failure> {
    Ok(paths_in(&process::printed(Command::new("ldd").arg(program))?))
}

/// The paths in the output of ldd(1): `libc.so.6 => /lib/libc.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn paths_in(listed: &str) -> Vec<String> {
    let words = listed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.map(str::to_owned).collect()
}

/// The first file below `folder` whose name fits.
fn find(folder: &Path, is_it: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    entries.iter().find_map(|path| match path.is_dir() {
        true => find(path, is_it),
        false => path.file_name().and_then(|name| name.to_str()).is_some_and(is_it).then(|| path.clone()),
    })
}

/// The first process of the machine. It inserts modules in several rounds, because they depend on each other. Small socket
/// buffers make the tests wait for space.
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

/// Boots the machine, waits until it is off, and reads its console.
fn boot(deadline: Deadline, kernel: &Path, initramfs: &Path) -> Outcome {
    let mut command = Command::new("qemu-system-x86_64");
    command.args("-accel tcg,thread=multi -cpu max -smp 2 -m 1024 -nodefaults -display none".split(' '));
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

/// The last lines of the tests if all of them passed, read from the console.
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
    fn tests_must_run_and_pass() {
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
    fn ldd_lists_paths_of_libraries() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(paths_in(listed), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
