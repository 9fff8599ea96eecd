//! The unsafe code under AddressSanitizer, which also finds what is never freed.
//!
//! Rust's own code is instrumented by a nightly compiler. The C shims of the TLS libraries are instrumented by the C
//! compiler, with the undefined behaviour that it can find too, under the usual Rust compiler; the libraries are not, but
//! what they do with memory of ours is seen where it is allocated and freed.

use std::process::Command;

use crate::process::{self, run, succeeds};
use crate::stage::{Context, Failure, Outcome};
use crate::{cargo, paths};

/// What owns rings, buffers, masks, or gives memory to others.
const PACKAGES: &[&str] = &[
    "tautline-window",
    "tautline-ws",
    "tautline-io",
    "tautline-xdp",
    "tautline-engine",
    "tautline-tls-records",
    "tautline-tls-tickets",
];

/// Tests of one more, without the one that has a `malloc` of its own, as the sanitizer does.
const SOME: [&str; 6] = ["conformance", "corpus", "engines", "snapshot", "streams", "tickets"];

/// The shims, each before a library; those of AWS-LC, BoringSSL and LibreSSL are one in C.
const SHIMS: [&str; 3] = ["tautline-tls-libssl", "tautline-tls-mbedtls", "tautline-tls-wolfssl"];
const LIBRARIES: &str = "tautline-tls-libssl/openssl,tautline-tls-libssl/aws-lc,tautline-tls-mbedtls/mbedtls,\
                         tautline-tls-wolfssl/wolfssl";

/// With a target named, programs that run while building are left as they are.
const TARGET: [&str; 2] = ["--target", "x86_64-unknown-linux-gnu"];

pub(crate) fn sanitize(context: &Context) -> Outcome {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(Failure::Skipped("it is set up for x86-64 only".to_owned()));
    }
    shims(context)?;
    rust(context)
}

fn shims(context: &Context) -> Outcome {
    let mut test = cargo::cargo(&["test", "--locked", "--no-fail-fast", "--features", LIBRARIES]);
    test.args(["--lib", "--test", "conformance", "--test", "fused"]).args(packages(&SHIMS)).args(TARGET);
    test.arg("--target-dir").arg(paths::target().join("sanitize"));
    // That of the system, which need not be built.
    test.env("TAUTLINE_OPENSSL", "/usr");
    test.env("TAUTLINE_SHIM_FLAGS", "-fsanitize=address,undefined -fno-sanitize-recover=undefined");
    test.env("RUSTFLAGS", "-Clink-arg=-lasan -Clink-arg=-lubsan");
    // It has to come before the C library, which rustc names first.
    let runtime = process::output(Command::new("cc").arg("-print-file-name=libasan.so"));
    let runtime = runtime.ok_or_else(|| Failure::Failed("the C compiler does not say where libasan is".to_owned()))?;
    test.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", format!("env LD_PRELOAD={}", runtime.trim()));
    run(&mut test, context.deadline)
}

fn rust(context: &Context) -> Outcome {
    if !succeeds("rustup", &["run", "nightly", "cargo", "--version"]) {
        context.skip("sanitize: Rust", "no nightly toolchain (rustup toolchain install nightly)");
        return Ok(());
    }
    let test = |tests: &[&str], names: &[&str]| {
        let mut test = Command::new("rustup");
        test.args(["run", "nightly", "cargo", "test", "--locked", "--no-fail-fast", "--lib"]).args(tests);
        test.args(packages(names)).args(TARGET).current_dir(paths::root());
        test.arg("--target-dir").arg(paths::target().join("sanitize")).env("RUSTFLAGS", "-Zsanitizer=address");
        run(&mut test, context.deadline)
    };
    test(&["--tests"], PACKAGES)?;
    test(SOME.map(|name| ["--test", name]).as_flattened(), &["tautline-tls-rustls"])
}

fn packages<'a>(names: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    names.iter().flat_map(|name| ["-p", name])
}
