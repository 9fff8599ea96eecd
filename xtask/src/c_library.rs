//! The library for C: its long tests, and its installation.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::{self, Deadline, run, run_logged};
use crate::stage::Context;
use crate::taut;

/// The version of the binary interface, as in the library's soname (`crates/capi/build.rs`).
const SONAME: &str = "libtautline.so.0";

/// The version of its symbols, as in `crates/capi/tautline.map`.
const VERSION: &str = "TAUTLINE_0";

/// Libraries of the system that programs with the static library link too.
const SYSTEM: &str = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc";

/// Builds the library for users, and installs it below `prefix`. `options` are cargo's, such as features.
///
/// Only the archive is built: beside a library for Rust, rustc does not optimise across crates.
pub(crate) fn install(context: &Context, prefix: &Path, options: &[&str]) -> Outcome {
    let arguments =
        ["rustc", "--profile", "dist", "--locked", "-p", "tautline-capi", "--lib", "--crate-type", "staticlib"];
    // The archive has lines for debuggers until `strip` moves them.
    let lines = ["--config", "profile.dist.debug='line-tables-only'", "--config", "profile.dist.strip='none'"];
    run(cargo(&arguments).args(lines).args(options), context.deadline)?;
    lay_out(context, prefix, "dist")
}

/// Builds the library for tests, and returns the prefix where it is installed.
///
/// Our own crates are optimised, as they are when released, but keep their assertions. A release takes minutes to build.
pub(crate) fn install_for_tests(context: &Context) -> Result<PathBuf, Failure> {
    let arguments = ["build", "--locked", "-p", "tautline-capi", "--config", "profile.dev.opt-level=3"];
    run(&mut cargo(&arguments), context.deadline)?;
    let prefix = paths::own("c-library");
    lay_out(context, &prefix, "debug")?;
    Ok(prefix)
}

/// Copies and links what is built in this folder of cargo's, with the headers and the files for builds of others.
fn lay_out(context: &Context, prefix: &Path, built: &str) -> Outcome {
    let [include, lib] = ["include", "lib"].map(|folder| prefix.join(folder));
    let packages = lib.join("pkgconfig");
    [&include, &packages].into_iter().try_for_each(fs::create_dir_all)?;
    let built = paths::target().join(built);
    let version = env!("CARGO_PKG_VERSION");
    let whole = format!("libtautline.so.{version}");
    let source = paths::root().join("crates/capi");
    for header in ["tautline.h", "tautline.hpp"] {
        fs::copy(source.join("include").join(header), include.join(header))?;
    }
    let share = prefix.join("share/tautline");
    fs::create_dir_all(&share)?;
    fs::copy(source.join("include/tautline.json"), share.join("tautline.json"))?;
    fs::copy(built.join("libtautline_capi.a"), lib.join("libtautline.a"))?;
    link(&lib.join("libtautline.a"), &lib.join(&whole), context)?;
    strip(&lib.join(&whole), context.deadline)?;
    run(Command::new("strip").arg("--strip-debug").arg(lib.join("libtautline.a")), context.deadline)?;
    for (link, to) in [(SONAME, whole.as_str()), ("libtautline.so", SONAME)] {
        let link = lib.join(link);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(to, link)?;
    }
    fs::write(packages.join("tautline.pc"), package(prefix, version))?;
    let config = lib.join("cmake/tautline");
    fs::create_dir_all(&config)?;
    fs::copy(source.join("cmake/tautline-config.cmake"), config.join("tautline-config.cmake"))?;
    fs::write(config.join("tautline-config-version.cmake"), cmake_version(version))?;
    println!("installed below {}", prefix.display());
    Ok(())
}

/// Links the shared library anew, because cargo cannot give its symbols versions. Then it checks the versions.
fn link(archive: &Path, library: &Path, context: &Context) -> Outcome {
    let map = paths::root().join("crates/capi/tautline.map");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,-z,relro,-z,now"]);
    cc.arg(format!("-Wl,-soname,{SONAME}")).arg(format!("-Wl,--version-script={}", map.display()));
    cc.arg("-o").arg(library).arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    run(cc.args(SYSTEM.split(' ')), context.deadline)?;
    let symbols = process::output(Command::new("nm").args(["-D", "--defined-only"]).arg(library)).unwrap_or_default();
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let header = fs::read_to_string(paths::root().join("crates/capi/include/tautline.h"))?;
    for function in functions(&header) {
        if !names.contains(&format!("{function}@@{VERSION}").as_str()) {
            return Err(Failure::Failed(format!("the library lacks {function} in version {VERSION}")));
        }
    }
    match names.iter().find(|name| !name.starts_with("taut_") && **name != VERSION && !name.ends_with(VERSION)) {
        Some(name) => Err(Failure::Failed(format!("the library exports {name}, which is none of its functions"))),
        None => Ok(()),
    }
}

/// Moves what debuggers read into a file of its own, in the folder `.debug` beside the library, where they look for it.
fn strip(library: &Path, deadline: Deadline) -> Outcome {
    let (Some(folder), Some(name)) = (library.parent(), library.file_name()) else {
        return Err(Failure::Failed(format!("{} is no file", library.display())));
    };
    let debug = folder.join(".debug").join(name).with_added_extension("debug");
    fs::create_dir_all(folder.join(".debug"))?;
    run(Command::new("objcopy").arg("--only-keep-debug").arg(library).arg(&debug), deadline)?;
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    run(Command::new("objcopy").arg("--strip-all").arg(link).arg(library), deadline)
}

/// The functions that the header declares.
fn functions(header: &str) -> impl Iterator<Item = &str> {
    let code = header.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        (name.starts_with("taut_") && before != name).then_some(name)
    })
}

/// The file by which CMake compares versions: equal before the dot, since the interface may still change.
fn cmake_version(version: &str) -> String {
    let compatible = version.rsplit_once('.').map_or(version, |(compatible, _)| compatible);
    format!(
        "set(PACKAGE_VERSION \"{version}\")\nif(PACKAGE_FIND_VERSION STREQUAL \"{compatible}\" OR \
         PACKAGE_FIND_VERSION STREQUAL \"{version}\")\n  set(PACKAGE_VERSION_COMPATIBLE TRUE)\nendif()\n"
    )
}

/// The file by which pkg-config knows the library.
fn package(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}\n\nName: tautline\nDescription: Secure WebSockets and TLS\nVersion: {version}\nCflags: -I${{prefix}}/include\n\
         Libs: -L${{prefix}}/lib -ltautline\nLibs.private: {SYSTEM}\n",
        prefix.display()
    )
}

/// The tests that `cargo xtask test` shortens, with C++ and valgrind, and the examples against the installed library.
pub(crate) fn test(context: &Context) -> Outcome {
    // With the features of the ordinary tests, so that nothing is compiled twice.
    let mut test = cargo(&["test", "--workspace", "--locked", "--no-fail-fast"]);
    test.args(["--test", "programs", "--test", "windows"]);
    run(test.env("TAUTLINE_WHOLE", "1"), context.deadline)?;
    let prefix = install_for_tests(context)?;
    for wanted in [&["--libs"][..], &["--static", "--libs"]] {
        let mut flags = Command::new("pkg-config");
        flags.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).arg("--cflags").args(wanted).arg("tautline");
        let flags = process::output(&mut flags).ok_or("pkg-config does not find the library")?;
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-o"]).arg(prefix.join("echo")).arg(paths::root().join("examples/c/echo.c"));
        if wanted.len() == 2 {
            cc.arg("-Wl,-Bstatic");
        }
        cc.args(flags.replace("-ltautline", "-ltautline -Wl,-Bdynamic").split_whitespace());
        run(&mut cc, context.deadline)?;
        let mut echo = Command::new(prefix.join("echo"));
        echo.env("LD_LIBRARY_PATH", prefix.join("lib"));
        // Without arguments it prints its usage, so the library was found.
        if echo.status()?.code() != Some(2) {
            return Err(Failure::Failed("the example does not run with the installed library".to_owned()));
        }
    }
    let programs = with_cmake(context, &prefix)?;
    talk(context, &prefix, &programs, &programs.join("ws_echo"))?;
    talk(context, &prefix, &programs, &in_go(context, &prefix, "examples/go")?)?;
    use_badly(context, &prefix, &in_go(context, &prefix, "crates/capi/tests/go")?)
}

/// Installs the library and builds the examples for WebSockets; returns their folder.
pub(crate) fn examples(context: &Context) -> Result<PathBuf, Failure> {
    with_cmake(context, &install_for_tests(context)?)
}

/// Builds programs in C and C++ as a project with CMake does.
fn with_cmake(context: &Context, prefix: &Path) -> Result<PathBuf, Failure> {
    let folder = prefix.join("cmake-build");
    // CMake refuses a cache that another checkout made.
    paths::empty(&folder)?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(paths::root().join("crates/capi/cmake/test")).arg("-B").arg(&folder);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())).arg("-DCMAKE_BUILD_TYPE=Release");
    run(&mut configure, context.deadline)?;
    run(Command::new("cmake").arg("--build").arg(&folder), context.deadline)?;
    Ok(folder)
}

/// Builds the program in Go of this folder, and returns its path.
fn in_go(context: &Context, prefix: &Path, source: &str) -> Result<PathBuf, Failure> {
    let program = prefix.join(format!("go-{}", source.replace('/', "-")));
    for arguments in [&["vet", "."][..], &["build", "-o"]] {
        let mut go = Command::new("go");
        go.args(arguments).current_dir(paths::root().join(source));
        if arguments.len() == 2 && arguments[0] == "build" {
            go.arg(&program).arg(".");
        }
        go.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("CGO_ENABLED", "1").env("GOFLAGS", "-mod=readonly");
        run(&mut go, context.deadline)?;
    }
    Ok(program)
}

/// Runs a program that uses the library badly, and prints "passed" if all of it is answered.
fn use_badly(context: &Context, prefix: &Path, program: &Path) -> Outcome {
    let here = prefix.join("certificates");
    certificate(&here, context)?;
    let mut command = Command::new(program);
    // The certificate is its own authority.
    command.args(["cert.pem", "cert.pem", "key.pem"].map(|name| here.join(name)));
    run(command.env("LD_LIBRARY_PATH", prefix.join("lib")), context.deadline)
}

/// Has the clients of the examples talk to a server of them.
fn talk(context: &Context, prefix: &Path, programs: &Path, server: &Path) -> Outcome {
    let here = prefix.join("certificates");
    certificate(&here, context)?;
    let port = taut::free_port()?;
    let mut command = Command::new(server);
    command.arg(format!("127.0.0.1:{port}")).args(["cert.pem", "key.pem"].map(|name| here.join(name)));
    command.env("LD_LIBRARY_PATH", prefix.join("lib"));
    let _running = taut::start(&mut command, port, "c-library-server")?;
    let uri = format!("wss://localhost:{port}/");
    let text = "hello, ".repeat(5000);
    for (client, further) in [("ws_ask", &[][..]), ("ws_feed", &["1"])] {
        let mut command = Command::new(programs.join(client));
        command.arg(&uri).arg(here.join("cert.pem")).arg(&text).args(further);
        command.env("LD_LIBRARY_PATH", prefix.join("lib"));
        if process::output(&mut command).is_none_or(|heard| heard.trim_end() != text.trim_end()) {
            let what = format!("{client} did not hear its own text from {}", server.display());
            return Err(Failure::Failed(what));
        }
    }
    Ok(())
}

/// Makes a certificate for localhost that signs itself, so that clients can trust it.
fn certificate(folder: &Path, context: &Context) -> Outcome {
    fs::create_dir_all(folder)?;
    let settings = "[req]\ndistinguished_name=name\nx509_extensions=more\nprompt=no\n[name]\nCN=localhost\n[more]\n\
                    subjectAltName=DNS:localhost\nbasicConstraints=critical,CA:FALSE\n";
    fs::write(folder.join("openssl.cnf"), settings)?;
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]);
    openssl.args(["-config", "openssl.cnf", "-keyout", "key.pem", "-out", "cert.pem"]).current_dir(folder);
    run_logged(&mut openssl, &paths::log("c-library-certificate"), context.deadline)
}

#[cfg(test)]
mod tests {
    use super::{functions, strip};
    use crate::paths;
    use crate::process::{self, Deadline};
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_stripped_library_keeps_its_symbols_and_names_its_debug_file() {
        let folder = paths::own("tests").join(format!("strip-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.c"), "int taut_yes(int a) { return a + 1; }\n").unwrap();
        let library = folder.join("liba.so.1");
        let mut cc = Command::new("cc");
        cc.args(["-g", "-shared", "-fPIC", "-o"]).arg(&library).arg(folder.join("a.c"));
        assert!(cc.status().unwrap().success());
        let sections = |of: &Path| process::output(Command::new("readelf").arg("-SW").arg(of)).unwrap();
        assert!(sections(&library).contains(".debug_info"));
        strip(&library, Deadline::after(Duration::from_secs(60))).unwrap();
        let stripped = sections(&library);
        assert!(!stripped.contains(".debug_info") && stripped.contains(".gnu_debuglink"), "{stripped}");
        assert!(sections(&folder.join(".debug/liba.so.1.debug")).contains(".debug_info"));
        let symbols = process::output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library)).unwrap();
        assert!(symbols.contains("taut_yes"), "{symbols}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn functions_are_found_in_the_header() {
        let header = "// taut_no(\ntypedef void (*taut_destroy)(void *user);\ntaut_code taut_yes(int a);\n\
                      const char *taut_too(void);\n    uint32_t (*member)(void);\n";
        assert_eq!(functions(header).collect::<Vec<_>>(), ["taut_yes", "taut_too"]);
    }
}
