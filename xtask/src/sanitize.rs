//! The unsafe code under AddressSanitizer, which finds leaks too.
//!
//! A nightly compiler instruments the Rust code. The C compiler instruments the shims of the TLS libraries, also for
//! undefined behaviour, while their Rust code is built as usual. The TLS libraries are not instrumented. Their errors are
//! still found in memory that instrumented code allocates and frees.

use std::process::Command;

use crate::outcome::{Failure, Outcome};
use crate::process::{self, run, succeeds};
use crate::stage::Context;
use crate::{cargo, paths};

/// Tests of packages with rings, buffers, masks, or memory that others use.
const PACKAGES: &str = "-p tautline-buf -p tautline-ws -p tautline-io -p tautline-xdp -p tautline-engine \
                        -p tautline-tls-records -p tautline-tls-tickets --tests";

/// Tests of tls-rustls. Another of its tests brings a `malloc`, as the sanitizer does, so it cannot run here.
const SOME: &str = "-p tautline-tls-rustls --test conformance --test engines";

/// The libraries whose shims run. BoringSSL and LibreSSL have the C code of AWS-LC's shim.
const FEATURES: &str = "tautline-tls-libssl/openssl,tautline-tls-libssl/aws-lc,tautline-tls-mbedtls/mbedtls,\
                         tautline-tls-wolfssl/wolfssl";

/// If a target is named, build scripts and macros are not instrumented.
const TARGET: [&str; 2] = ["--target", "x86_64-unknown-linux-gnu"];

/// The flags of rustc for programs with the C compiler's sanitizers.
const LINKED: &str = "-Clink-arg=-lasan -Clink-arg=-lubsan";

/// Builds the tests, and runs them.
pub(crate) fn sanitize(context: &Context) -> Outcome {
    check_platform()?;
    shims(context, &[])?;
    rust(context, &[])
}

/// Builds the tests.
pub(crate) fn build(context: &Context) -> Outcome {
    check_platform()?;
    libraries(context)?;
    shims(context, &["--no-run"])?;
    rust(context, &["--no-run"])
}

fn check_platform() -> Outcome {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Ok(());
    }
    Err(Failure::Skipped("it is set up for x86-64 Linux only".to_owned()))
}

/// Builds the libraries that tests without a sanitizer need, too: all of these share one folder with them.
fn libraries(context: &Context) -> Outcome {
    let mut build = cargo::cargo(&["build", "--locked", "--features", FEATURES, "--features"]);
    build.arg("tautline-tls-libssl/engines").args(cargo::LIBRARIES.iter().flat_map(|package| ["-p", package]));
    build.args(TARGET).arg("--target-dir").arg(paths::target().join("sanitize")).env("RUSTFLAGS", LINKED);
    run(&mut build, context.deadline)
}

fn shims(context: &Context, further: &[&str]) -> Outcome {
    let mut test = cargo::cargo(&["test", "--locked", "--no-fail-fast", "--features", FEATURES]);
    test.args(["--lib", "--test", "conformance", "--test", "fused"])
        .args(cargo::LIBRARIES.iter().flat_map(|package| ["-p", package]));
    test.args(TARGET).args(further);
    test.arg("--target-dir").arg(paths::target().join("sanitize"));
    // The system's OpenSSL need not be built. This is the only stage that tests it.
    test.env("TAUTLINE_OPENSSL", "/usr");
    test.env("TAUTLINE_SHIM_FLAGS", "-fsanitize=address,undefined -fno-sanitize-recover=undefined");
    test.env("RUSTFLAGS", LINKED);
    // The runtime must be loaded before the C library, which rustc names first.
    let runtime = process::output(Command::new("cc").arg("-print-file-name=libasan.so"));
    let runtime = runtime.ok_or("the C compiler does not print the path of libasan")?;
    test.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", format!("env LD_PRELOAD={}", runtime.trim()));
    run(&mut test, context.deadline)
}

fn rust(context: &Context, further: &[&str]) -> Outcome {
    if !succeeds("rustup", &["run", "nightly", "cargo", "--version"]) {
        context.skip("sanitize: Rust", "no nightly toolchain (rustup toolchain install nightly)");
        return Ok(());
    }
    for tests in [PACKAGES, SOME] {
        let mut test = Command::new("rustup");
        test.args(["run", "nightly", "cargo", "test", "--locked", "--no-fail-fast", "--lib"]).args(tests.split(' '));
        test.args(TARGET).args(further).current_dir(paths::root());
        test.arg("--target-dir").arg(paths::target().join("sanitize")).env("RUSTFLAGS", "-Zsanitizer=address");
        run(&mut test, context.deadline)?;
    }
    Ok(())
}
