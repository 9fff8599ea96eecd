//! The cost of a call from C above the call in Rust.
//!
//! ```text
//! cargo xtask c-library --prefix DIR
//! cargo run --profile dist -p tautline-capi --example cost DIR [BYTES]
//! ```
//!
//! A program in C (`tests/c/bench.c`, compiled by `cc -O2` against the installed shared library) and a loop in Rust seal
//! and open the same records in turns. The figures are medians of the rounds, in nanoseconds per call.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};
use tautline::layers::tls_rustls::fused;
use tautline_buf::Buf;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{Certificate, ClientConfig, Content, Roots, ServerConfig, Session};

const ROUNDS: usize = 31;
const ROUND: Duration = Duration::from_millis(60);
const BATCH: u32 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let prefix = env::args().nth(1).ok_or("usage: cost DIR [BYTES], where DIR has the installed library")?;
    let len: usize = env::args().nth(2).map_or(Ok(64), |len| len.parse())?;
    let folder = env::temp_dir().join(format!("tautline-cost-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let measured = measure(Path::new(&prefix), &folder, len);
    fs::remove_dir_all(&folder)?;
    let mut rounds = measured?;
    println!("{len} B, {ROUNDS} rounds, ns per call: Rust, C, difference (median of paired rounds)");
    for (name, at) in [("seal", 0), ("open", 1)] {
        let mut median = |of: fn(&[[f64; 2]; 2], usize) -> f64| {
            rounds.sort_by(|one, other| of(one, at).total_cmp(&of(other, at)));
            of(&rounds[ROUNDS / 2], at)
        };
        let [rust, c] = [median(|round, at| round[0][at]), median(|round, at| round[1][at])];
        let difference = median(|round, at| round[1][at] - round[0][at]);
        println!("{name}: {rust:.1} {c:.1} {difference:+.1}");
    }
    Ok(())
}

/// For each round, nanoseconds of seal and open, in Rust and in C.
fn measure(prefix: &Path, folder: &Path, len: usize) -> Result<Vec<[[f64; 2]; 2]>, Box<dyn Error>> {
    let authority = Authority::new("Cost")?;
    let certificate = authority.issue(&Leaf::new(&["localhost"]))?;
    fs::write(folder.join("ca.pem"), authority.certificate())?;
    fs::write(folder.join("cert.pem"), &certificate.chain)?;
    fs::write(folder.join("key.pem"), &certificate.key)?;
    let program = compile(&prefix.canonicalize()?, folder)?;
    let mut pair = establish(&authority, certificate)?;
    let mut buffers = Buffers { data: vec![0; len], wire: Buf::new(), scratch: Buf::new(), out: Buf::new() };
    let mut rounds = Vec::new();
    for round in 0..=ROUNDS {
        let rust = in_rust(&mut pair, &mut buffers)?;
        let mut c = Command::new(&program);
        c.args(["ca.pem", "cert.pem", "key.pem"].map(|name| folder.join(name)));
        let output = c.arg(len.to_string()).arg(ROUND.as_millis().to_string()).output()?;
        let text = String::from_utf8(output.stdout)?;
        let mut figures = text.split_whitespace().map(str::parse);
        let (Some(seal), Some(open)) = (figures.next(), figures.next()) else {
            return Err("the program in C failed".into());
        };
        // The first round warms up.
        if round > 0 {
            rounds.push([rust, [seal?, open?]]);
        }
    }
    Ok(rounds)
}

fn compile(prefix: &Path, folder: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let [include, lib] = ["include", "lib"].map(|name| prefix.join(name));
    let program = folder.join("bench");
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-O2"]).arg(format!("-I{}", include.display()));
    cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/bench.c")).arg("-o").arg(&program);
    cc.arg(format!("-L{}", lib.display())).arg("-ltautline").arg(format!("-Wl,-rpath,{}", lib.display()));
    if cc.status()?.success() { Ok(program) } else { Err("cc failed".into()) }
}

type Sessions = Pair<fused::Session, fused::Session>;

fn establish(authority: &Authority, certificate: Certificate) -> Result<Sessions, Box<dyn Error>> {
    let server = fused::Engine::server(&ServerConfig::new([certificate]))?;
    let roots = Roots::Pem(authority.certificate().into());
    let client = fused::Engine::client(&ClientConfig::default().with_roots(roots))?;
    let mut pair = Pair::new(&client, &server, "localhost")?;
    pair.handshake(&mut Split::Whole).map_err(|failure| failure.error)?;
    Ok(pair)
}

struct Buffers {
    data: Vec<u8>,
    wire: Buf,
    scratch: Buf,
    out: Buf,
}

/// Nanoseconds of seal and open, for one round.
fn in_rust(pair: &mut Sessions, buffers: &mut Buffers) -> Result<[f64; 2], Box<dyn Error>> {
    let Buffers { data, wire, scratch, out } = buffers;
    let (mut sealing, mut opening, mut calls) = (Duration::ZERO, Duration::ZERO, 0);
    while sealing + opening < ROUND {
        wire.clear();
        wire.reserve(BATCH as usize * (data.len() + 64));
        let start = Instant::now();
        for _ in 0..BATCH {
            pair.client.session.seal(&[data], wire)?;
        }
        let middle = Instant::now();
        let mut rest = wire.filled_mut();
        for _ in 0..BATCH {
            let opened = pair.server.session.open(rest, scratch, out)?;
            let Content::Data(plain) = opened.content else { return Err("not data".into()) };
            if plain.range.len() != data.len() {
                return Err("not the data".into());
            }
            let used = opened.used;
            rest = &mut rest[used..];
        }
        opening += middle.elapsed();
        sealing += middle - start;
        calls += BATCH;
    }
    Ok([sealing, opening].map(|time| time.as_secs_f64() * 1e9 / f64::from(calls)))
}
