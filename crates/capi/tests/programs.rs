//! Programs in C over the header and the shared library, also under AddressSanitizer, and against OpenSSL's.
//!
//! With `TAUTLINE_WHOLE` set, a program in C++ and valgrind take part: `cargo xtask test --rest` does that.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline_testkit::certificate::{Authority, Leaf, Usage};

const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

const SANITIZE: [&str; 2] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn include() -> String {
    format!("-I{}/include", env!("CARGO_MANIFEST_DIR"))
}

fn is_whole() -> bool {
    env::var_os("TAUTLINE_WHOLE").is_some()
}

/// A folder with certificates, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tautline-capi-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        let authority = Authority::new("Test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["localhost"]).with_usage(Usage::Both)).unwrap();
        fs::write(path.join("ca.pem"), authority.certificate()).unwrap();
        fs::write(path.join("cert.pem"), &certificate.chain).unwrap();
        fs::write(path.join("key.pem"), &certificate.key).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles a program against the shared library, and returns its path.
    fn compile(&self, compiler: &str, standard: &str, source: &str, flags: &[&str]) -> PathBuf {
        let program = self.path("program");
        let library = library();
        let mut command = Command::new(compiler);
        command.args([standard, "-g", "-O1", &include()]).args(WARNINGS).args(flags);
        command.arg(root().join(source)).arg("-o").arg(&program).arg(&library).arg("-pthread");
        // The library is loaded by its soname, from this folder.
        fs::copy(&library, self.path("libtautline.so.0")).unwrap();
        command.arg(format!("-Wl,-rpath,{}", self.0.display()));
        expect(&mut command);
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The shared library, which cargo builds beside the tests.
fn library() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().join("libtautline_capi.so")
}

/// Runs a command that must succeed, and returns what it printed.
fn expect(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// A program that is stopped on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server at a free port of its own choice, and returns the port at the end of the line that it prints.
fn serve(command: &mut Command, says: &str) -> (Running, String) {
    let mut server = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.as_mut().unwrap()).lines();
    let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains(says));
    let line = line.unwrap_or_default();
    assert!(!line.is_empty(), "{command:?} does not listen");
    let port = line.rsplit([' ', ':']).next().unwrap().to_owned();
    (server, port)
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The programs of tests in C. Each prints "passed".
const PROGRAMS: [&str; 4] = ["test", "ws", "server", "sizes"];

/// Runs a program of tests: it gets the certificates and prints "passed".
fn run_tests(folder: &Folder, mut command: Command) {
    command.args(["ca.pem", "cert.pem", "key.pem"].map(|name| folder.path(name)));
    assert_eq!(expect(&mut command).lines().last(), Some("passed"));
}

/// The headers of C, POSIX and Linux. A macro of any of them may have the name of a parameter or a member.
const LIBC: &str = "aio alloca arpa/inet assert byteswap complex cpio ctype dirent dlfcn elf endian err errno error
    execinfo fcntl fenv float fmtmsg fnmatch ftw getopt glob grp iconv ifaddrs inttypes iso646 langinfo libgen limits
    link locale malloc math mntent monetary mqueue net/if netdb netinet/in netinet/tcp nl_types obstack paths poll
    pthread pwd regex resolv sched search semaphore setjmp signal spawn stdalign stdarg stdbool stddef stdint stdio
    stdlib string strings sys/epoll sys/eventfd sys/file sys/inotify sys/ioctl sys/ipc sys/mman sys/mount sys/msg
    sys/param sys/prctl sys/ptrace sys/random sys/resource sys/select sys/sem sys/sendfile sys/shm sys/signalfd
    sys/socket sys/stat sys/statvfs sys/syscall sys/sysinfo sys/sysmacros sys/time sys/timerfd sys/times sys/types
    sys/uio sys/un sys/user sys/utsname sys/wait sys/xattr syslog tar termios tgmath threads time uchar ucontext
    unistd utime utmpx wchar wctype wordexp";

/// The compilers that the headers must pass, each with its standard, its language and a header.
fn compilers() -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let mut compilers = vec![("cc", "-std=c99", "c", "tautline.h")];
    if is_whole() || has("c++") {
        compilers.push(("c++", "-std=c++17", "c++", "tautline.h"));
        compilers.push(("c++", "-std=c++17", "c++", "tautline.hpp"));
    }
    compilers
}

#[test]
fn the_header_is_c99_and_cxx17() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, standard, language, header) in compilers() {
        let mut command = Command::new(compiler);
        command.args([standard, "-fsyntax-only", "-x", language]).args(WARNINGS).arg(folder.join(header));
        expect(&mut command);
    }
}

/// The preprocessor changes no word of a header because of headers before it, such as a parameter named `errno`.
#[test]
fn the_header_has_no_name_of_a_macro_of_libc() {
    let folder = Folder::new();
    let libc: String = LIBC
        .split_whitespace()
        .map(|name| format!("#if __has_include(<{name}.h>)\n#include <{name}.h>\n#endif\n"))
        .collect();
    for (compiler, standard, language, header) in compilers() {
        let preprocessed = |before: &str| {
            let source = folder.path("behind");
            fs::write(&source, format!("{before}#include \"{header}\"\n")).unwrap();
            let mut command = Command::new(compiler);
            command.args([standard, "-D_GNU_SOURCE", &include(), "-x", language]).args(WARNINGS).arg(source);
            expect(command.arg("-fsyntax-only"));
            words_of("/include/tautline.h", &expect(command.arg("-E")))
        };
        let alone = preprocessed("#include <stddef.h>\n#include <stdint.h>\n");
        let behind = preprocessed(&format!("{libc}#ifndef errno\n#error errno\n#endif\n"));
        assert!(alone.len() > 1500, "{} words", alone.len());
        for (alone, behind) in alone.windows(8).zip(behind.windows(8)) {
            assert_eq!(alone, behind, "{compiler} {header}");
        }
        assert_eq!(alone.len(), behind.len());
    }
}

/// The words of a preprocessor's output that come from files whose paths have this part.
fn words_of(file: &str, output: &str) -> Vec<String> {
    let mut inside = false;
    let mut words = Vec::new();
    for line in output.lines() {
        match line.strip_prefix("# ") {
            Some(marker) => inside = marker.split('"').nth(1).is_some_and(|name| name.contains(file)),
            None if inside => words.extend(line.split_whitespace().map(str::to_owned)),
            None => {}
        }
    }
    words
}

#[test]
fn programs_in_c() {
    for name in PROGRAMS {
        let folder = Folder::new();
        let program = folder.compile("cc", "-std=c99", &format!("crates/capi/tests/c/{name}.c"), &[]);
        run_tests(&folder, Command::new(&program));
        if is_whole() {
            assert!(has("valgrind"), "`cargo xtask setup` installs valgrind");
            let mut command = Command::new("valgrind");
            command.args(["--error-exitcode=9", "--leak-check=full", "--show-leak-kinds=definite"]);
            let known = root().join("crates/capi/tests/c/valgrind.supp");
            command.arg(format!("--suppressions={}", known.display()));
            command.args(["--errors-for-leak-kinds=definite", "--fair-sched=yes", "-q"]).arg(&program);
            run_tests(&folder, command);
        }
    }
}

#[test]
fn programs_in_c_under_address_sanitizer() {
    for name in PROGRAMS {
        let folder = Folder::new();
        let program = folder.compile("cc", "-std=c99", &format!("crates/capi/tests/c/{name}.c"), &SANITIZE);
        run_tests(&folder, Command::new(program));
    }
}

#[test]
fn programs_in_cxx() {
    if !is_whole() {
        return;
    }
    for (name, flags) in ["test", "server"].iter().flat_map(|name| [(name, &[][..]), (name, &SANITIZE)]) {
        let folder = Folder::new();
        let program = folder.compile("c++", "-std=c++17", &format!("crates/capi/tests/c/{name}.cpp"), flags);
        run_tests(&folder, Command::new(program));
    }
}

/// The examples for WebSockets talk to each other, and to no stranger.
#[test]
fn the_examples_for_web_sockets_talk() {
    let folders = ["ws_echo", "ws_ask", "ws_feed"].map(|name| {
        let folder = Folder::new();
        let program = folder.compile("cc", "-std=c99", &format!("examples/c/{name}.c"), &["-fsanitize=address"]);
        (folder, program)
    });
    let [(folder, echo), (other, ask), (_feed, feed)] = &folders;
    let mut server = Command::new(echo);
    server.arg("127.0.0.1:0").args(["cert.pem", "key.pem"].map(|name| folder.path(name)));
    let mut server = Running(server.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let uri = line.strip_prefix("listening on ").unwrap().replace("127.0.0.1", "localhost");
    for (client, further) in [(ask, None), (feed, Some("1"))] {
        let mut client = Command::new(client);
        client.arg(&uri).arg(folder.path("ca.pem")).arg("hello").args(further);
        assert_eq!(expect(&mut client).trim(), "hello");
    }
    let mut stranger = Command::new(ask);
    let output = stranger.arg(&uri).arg(other.path("ca.pem")).arg("hello").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("issuer is not trusted"), "{said}");
    // Certificates are loaded anew, and a signal drains it.
    let signal = |name: &str| expect(Command::new("kill").args([name, &server.0.id().to_string()]));
    signal("-HUP");
    assert_eq!(lines.next().unwrap().unwrap(), "reloaded");
    signal("-TERM");
    assert!(server.0.wait().unwrap().success());
}

/// The program that measures the cost of a call works.
#[test]
fn the_cost_of_a_call_can_be_measured() {
    let folder = Folder::new();
    let program = folder.compile("cc", "-std=c99", "crates/capi/tests/c/bench.c", &["-fsanitize=address"]);
    let mut command = Command::new(program);
    command.env("ASAN_OPTIONS", "detect_leaks=0").args(["ca.pem", "cert.pem", "key.pem"].map(|name| folder.path(name)));
    let figures = expect(command.args(["64", "1"]));
    assert!(figures.split_whitespace().all(|figure| figure.parse::<f64>().unwrap() > 0.0), "{figures}");
}

/// The example's client talks to the example's server.
#[test]
fn the_example_echoes() {
    let folder = Folder::new();
    let echo = folder.compile("cc", "-std=c99", "examples/c/echo.c", &["-fsanitize=address"]);
    let mut server = Command::new(&echo);
    server.args(["server", "0"]).args(["cert.pem", "key.pem"].map(|name| folder.path(name)));
    let (_server, port) = serve(&mut server, "listening");
    let text = "hello, ".repeat(3000);
    let mut client = Command::new(&echo);
    client.args(["client", "localhost", &port]).arg(folder.path("ca.pem")).arg(&text);
    assert!(expect(&mut client) == text);
    let mut stranger = Command::new(&echo);
    let other = Folder::new();
    stranger.args(["client", "localhost", &port]).arg(other.path("ca.pem")).arg("hello");
    let output = stranger.output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("issuer is not trusted") && said.contains("alert 48"), "{said}");
}

/// The example's client gets a page from `openssl s_server`, over TLS 1.3 and 1.2.
#[test]
fn the_example_gets_a_page_from_openssl() {
    let folder = Folder::new();
    let echo = folder.compile("cc", "-std=c99", "examples/c/echo.c", &["-fsanitize=address"]);
    for version in ["-tls1_3", "-tls1_2"] {
        let mut server = Command::new("openssl");
        server.args(["s_server", "-www", version, "-accept", "127.0.0.1:0"]);
        server.arg("-cert").arg(folder.path("cert.pem")).arg("-key").arg(folder.path("key.pem"));
        let (_server, port) = serve(server.stderr(Stdio::null()), "ACCEPT");
        let mut client = Command::new(&echo);
        client.args(["client", "localhost", &port]).arg(folder.path("ca.pem"));
        let page = expect(client.arg("GET / HTTP/1.0\r\n\r\n"));
        assert!(page.starts_with("HTTP/1.0 200 ok") && page.contains("</HTML>"), "{version}: {page}");
    }
}

/// `openssl s_client` gets its lines back from the example's server.
#[test]
fn the_example_serves_openssl() {
    let folder = Folder::new();
    let echo = folder.compile("cc", "-std=c99", "examples/c/echo.c", &["-fsanitize=address"]);
    let mut server = Command::new(&echo);
    server.args(["server", "0"]).args(["cert.pem", "key.pem"].map(|name| folder.path(name)));
    let (_server, port) = serve(&mut server, "listening");
    for version in ["-tls1_3", "-tls1_2"] {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-quiet", "-verify_return_error", "-servername", "localhost", version, "-connect"]);
        client.arg(format!("127.0.0.1:{port}")).arg("-CAfile").arg(folder.path("ca.pem"));
        let client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut client = Running(client.spawn().unwrap());
        let text = "said by openssl\n";
        client.0.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
        let mut heard = vec![0; text.len()];
        client.0.stdout.as_mut().unwrap().read_exact(&mut heard).unwrap();
        assert_eq!(heard, text.as_bytes(), "{version}");
    }
}

/// The snippets of docs/c.md and docs/languages.md in one language.
fn snippets(language: &str) -> Vec<String> {
    let text = ["docs/c.md", "docs/languages.md"].map(|page| fs::read_to_string(root().join(page)).unwrap()).concat();
    let begin = format!("```{language}\n");
    text.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Every snippet of the two pages compiles without warnings.
#[test]
fn the_snippets_of_the_documentation_compile() {
    let folder = Folder::new();
    let mut languages = vec![("c", "cc", "-std=c99", 8)];
    if is_whole() {
        languages.push(("cpp", "c++", "-std=c++17", 1));
    }
    for (language, compiler, standard, least) in languages {
        let snippets = snippets(language);
        assert!(snippets.len() >= least);
        for snippet in snippets {
            let source = folder.path(&format!("snippet.{language}"));
            fs::write(&source, snippet).unwrap();
            let mut command = Command::new(compiler);
            expect(command.args([standard, "-fsyntax-only", &include()]).args(WARNINGS).arg(source));
        }
    }
}

/// The documentation's server answers the documentation's client.
#[test]
fn the_programs_of_the_documentation_talk() {
    let [server, client] = ["taut_server_start(&options", "taut_socket_connect(tls"].map(|call| {
        let found = snippets("c").into_iter().find(|snippet| snippet.contains(call) && snippet.contains("int main"));
        let folder = Folder::new();
        let source = folder.path("program.c");
        fs::write(&source, found.unwrap()).unwrap();
        let program = folder.compile("cc", "-std=c99", source.to_str().unwrap(), &["-fsanitize=address"]);
        (folder, program)
    });
    let (folder, program) = &server;
    let mut command = Command::new(program);
    command.arg("127.0.0.1:0").args(["cert.pem", "key.pem"].map(|name| folder.path(name)));
    let mut running = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on 127.0.0.1").unwrap();
    let mut ask = Command::new(&client.1);
    ask.arg(format!("wss://localhost{address}/")).arg(folder.path("ca.pem")).arg("hello");
    assert_eq!(expect(&mut ask), "hello\n");
    // The end of its input drains it.
    drop(running.0.stdin.take());
    assert!(running.0.wait().unwrap().success());
}
