//! The package for Debian and Ubuntu, and its test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{printed, run, run_logged, succeeds};
use crate::stage::{self, Context};
use crate::{paths, taut};

/// Packs a program by this method of compression, and returns the path of the package.
pub(crate) fn pack(context: &Context, program: &Path, compression: &str) -> Result<PathBuf, Failure> {
    let version = printed(Command::new(program).arg("version"))?.trim().replace("taut ", "");
    let architecture = printed(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let tree = paths::own("dist/deb");
    paths::empty(&tree)?;
    fill(context, &tree, program)?;
    let size = printed(Command::new("du").arg("-ks").arg(&tree))?;
    let control = fs::read_to_string(source("deb/control"))?
        .replace("@VERSION@", &version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@SIZE@", size.split_whitespace().next().unwrap_or("0"));
    fs::write(tree.join("DEBIAN/control"), control)?;
    let package = paths::own("dist").join(format!("taut_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    // Equal files make equal packages.
    build
        .env("SOURCE_DATE_EPOCH", "0")
        .args(["--root-owner-group", "-Z", compression, "--build"])
        .arg(&tree)
        .arg(&package);
    run(&mut build, context.deadline)?;
    Ok(package)
}

/// Copies all files of the package.
fn fill(context: &Context, tree: &Path, program: &Path) -> Outcome {
    let share = tree.join("usr/share");
    let files = [
        (program.to_owned(), "usr/bin/taut", 0o755),
        (source("systemd/taut.service"), "usr/lib/systemd/system/taut.service", 0o644),
        (source("systemd/taut-proxy.service"), "usr/lib/systemd/system/taut-proxy.service", 0o644),
        (source("systemd/taut.socket"), "usr/lib/systemd/system/taut.socket", 0o644),
        (source("deb/default"), "etc/default/taut", 0o644),
        (source("deb/default-proxy"), "etc/default/taut-proxy", 0o644),
        (source("grafana/tautline.json"), "usr/share/taut/grafana/tautline.json", 0o644),
        (source("prometheus/tautline.rules.yml"), "usr/share/taut/prometheus/tautline.rules.yml", 0o644),
        (paths::root().join("LICENSE-MIT"), "usr/share/doc/taut/copyright", 0o644),
        (paths::root().join("CHANGELOG.md"), "usr/share/doc/taut/changelog", 0o644),
        (source("deb/postinst"), "DEBIAN/postinst", 0o755),
        (source("deb/prerm"), "DEBIAN/prerm", 0o755),
        (source("deb/postrm"), "DEBIAN/postrm", 0o755),
    ];
    for (from, to, mode) in files {
        copy(&from, &tree.join(to), mode)?;
    }
    fs::create_dir_all(tree.join("etc/taut"))?;
    fs::write(tree.join("DEBIAN/conffiles"), "/etc/default/taut\n/etc/default/taut-proxy\n")?;
    let manual = share.join("man/man1");
    fs::create_dir_all(&manual)?;
    run(Command::new(program).args(["man", "--dir"]).arg(&manual), context.deadline)?;
    for (shell, place) in [
        ("bash", "bash-completion/completions/taut"),
        ("zsh", "zsh/vendor-completions/_taut"),
        ("fish", "fish/vendor_completions.d/taut.fish"),
    ] {
        let place = share.join(place);
        fs::create_dir_all(place.parent().unwrap_or(&share))?;
        fs::write(place, printed(Command::new(program).args(["completions", shell]))?)?;
    }
    let mut texts: Vec<PathBuf> = vec![share.join("doc/taut/changelog")];
    for page in fs::read_dir(&manual)? {
        texts.push(page?.path());
    }
    run(Command::new("gzip").args(["--best", "--no-name"]).args(texts), context.deadline)
}

fn copy(from: &Path, to: &Path, mode: u32) -> Outcome {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Installs, starts, upgrades and removes a package of the built program, above a copy of this system that is thrown away. The
/// program then runs there as in the image.
pub(crate) fn test(context: &Context) -> Outcome {
    if !stage::is_root() {
        return Err(Failure::Skipped("only root installs packages".to_owned()));
    }
    if !succeeds("dpkg-deb", &["--version"]) {
        return Err(Failure::Skipped("this distribution has no dpkg".to_owned()));
    }
    if !succeeds("unshare", &["--mount", "--net", "--pid", "--fork", "sh", "-euc", LAYER]) {
        return Err(Failure::Skipped("this machine permits no overlay above its root folder".to_owned()));
    }
    let package = pack(context, &taut::program(), "none")?;
    let mut test = Command::new("unshare");
    let script = format!("{LAYER}{RUN}");
    test.args(["--mount", "--net", "--pid", "--fork", "sh", "-euc", &script, "test"]);
    test.arg(&package).arg(source("deb/test.sh")).arg(source("docker"));
    let log = paths::log("package");
    run_logged(&mut test, &log, context.deadline)?;
    let checks = fs::read_to_string(&log)?.lines().filter(|line| line.starts_with("ok ")).count();
    eprintln!("the package: {checks} checks hold");
    Ok(())
}

/// Mounts an empty layer above this system.
const LAYER: &str = "
    mount --make-rprivate /
    mount -t tmpfs tmpfs /mnt
    mkdir /mnt/upper /mnt/work /mnt/root
    mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root";

/// Runs the test `$2` with the package `$1` there, and then that of the image, whose folder is `$3`.
const RUN: &str = "
    mount -t proc proc /mnt/root/proc
    mount --rbind /dev /mnt/root/dev
    mount -t tmpfs tmpfs /mnt/root/run
    mount -t tmpfs tmpfs /mnt/root/tmp
    cp \"$1\" /mnt/root/tmp/taut.deb
    cp \"$2\" /mnt/root/tmp/test.sh
    cp \"$3/Dockerfile\" \"$3/test.sh\" /mnt/root/run
    chroot /mnt/root dpkg-deb --fsys-tarfile /tmp/taut.deb | tar --extract --directory /mnt/root/run ./usr/bin/taut
    chroot /mnt/root sh /tmp/test.sh /tmp/taut.deb
    exec chroot /mnt/root sh /run/test.sh /run/Dockerfile /run/usr/bin/taut";

/// A file below `packaging`.
fn source(path: &str) -> PathBuf {
    paths::root().join("packaging").join(path)
}
