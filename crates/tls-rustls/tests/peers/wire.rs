//! Our end of a connection over a socket, and a program at the other end.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::End;
use tautline_tls::{Certificate, Error, ProtocolVersion, Session};
use tautline_tls_rustls::fused;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A folder with the peer's certificates, and the same for our side.
pub(crate) struct Fixture {
    pub(crate) folder: PathBuf,
    pub(crate) roots: String,
    pub(crate) certificate: Certificate,
}

impl Fixture {
    pub(crate) fn new(name: &str, key: KeyKind) -> Self {
        let folder = std::env::temp_dir().join(format!("tautline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let authority = Authority::new("Test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["localhost"]).with_key(key)).unwrap();
        std::fs::write(folder.join("roots.pem"), authority.certificate()).unwrap();
        std::fs::write(folder.join("chain.pem"), &certificate.chain).unwrap();
        std::fs::write(folder.join("key.pem"), &certificate.key).unwrap();
        Self { folder, roots: authority.certificate().to_owned(), certificate }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A session that can change its keys on request.
pub(crate) trait Rekey: Session {
    /// Sends a KeyUpdate, which asks for the peer's if `ask`. Returns whether this session can do so.
    fn rekey(end: &mut End<Self>, ask: bool) -> bool
    where
        Self: Sized;
}

impl Rekey for fused::Session {
    fn rekey(end: &mut End<Self>, ask: bool) -> bool {
        if end.session.tls_info().version == Some(ProtocolVersion::Tls12) {
            return false;
        }
        end.session.update_keys(ask, &mut end.outbox).unwrap();
        true
    }
}

impl Rekey for tautline_tls_rustls::Session {
    fn rekey(_: &mut End<Self>, _: bool) -> bool {
        false
    }
}

/// Our end of a connection.
pub(crate) struct Wire<S> {
    pub(crate) end: End<S>,
    socket: TcpStream,
}

impl<S: Session> Wire<S> {
    /// Completes the handshake.
    pub(crate) fn new(session: S, socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut wire = Self { end: End::new(session), socket };
        wire.until("the handshake completes", |end| end.open);
        wire
    }

    pub(crate) fn send(&mut self, plain: &[&[u8]]) {
        self.end.send(plain).unwrap();
        self.flush();
    }

    pub(crate) fn flush(&mut self) {
        let wire = self.end.take_outbox();
        self.socket.write_all(&wire).unwrap();
    }

    /// Reads until `done`.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&End<S>) -> bool) {
        self.end.work().unwrap();
        let mut piece = [0; 4096];
        while !done(&self.end) {
            self.flush();
            let len = self.read(&mut piece);
            assert!(len > 0, "the stream ends before {what}");
            self.end.deliver(&piece[..len]).unwrap();
        }
        self.flush();
    }

    /// Reads until these bytes have arrived.
    pub(crate) fn receives(&mut self, words: &str) {
        self.until(words, |end| contains(&end.received, words.as_bytes()));
    }

    /// Waits for the peer's close, closes too, and checks that the stream ends.
    pub(crate) fn expect_close(mut self) {
        self.until("close_notify", |end| end.closed);
        self.end.close();
        self.flush();
        self.expect_end();
    }

    /// Closes, waits for the peer's close, and checks that the stream ends.
    pub(crate) fn close_first(mut self) {
        self.end.close();
        self.until("the answer to close_notify", |end| end.closed);
        self.expect_end();
    }

    /// Reads the bytes that are there; a signal may interrupt.
    fn read(&mut self, piece: &mut [u8]) -> usize {
        loop {
            match self.socket.read(piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.unwrap(),
            }
        }
    }

    fn expect_end(&mut self) {
        self.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(self.socket.read_to_end(&mut Vec::new()).is_ok());
    }

    /// Changes the peer's next record in transit, and sends the alert that results.
    pub(crate) fn corrupt_inbound(&mut self) {
        let mut record = vec![0; 5];
        self.socket.read_exact(&mut record).unwrap();
        let len = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + len, 0);
        self.socket.read_exact(&mut record[5..]).unwrap();
        record[5 + len / 2] ^= 1;
        let error = self.end.deliver(&record).unwrap_err();
        assert!(matches!(error, Error::Peer(_)), "{error:?}");
        self.flush();
    }

    /// Changes our next record in transit. Returns the error that the peer's alert causes.
    pub(crate) fn corrupt_outbound(&mut self) -> Error {
        self.end.send(&[b"this will not arrive as it was"]).unwrap();
        let mut record = self.end.take_outbox();
        record[10] ^= 1;
        self.socket.write_all(&record).unwrap();
        let mut piece = [0; 4096];
        loop {
            let len = self.read(&mut piece);
            assert!(len > 0, "no alert came");
            if let Err(error) = self.end.deliver(&piece[..len]) {
                return error;
            }
        }
    }
}

/// A program with its input and output; it is killed on drop.
pub(crate) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    output: Vec<u8>,
}

impl Program {
    /// Starts a program; its errors are part of its output.
    pub(crate) fn start(command: &Command) -> Self {
        // A shell joins both streams. It passes the arguments on unchanged.
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(command.get_program()).args(command.get_args());
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { stdin: child.stdin.take(), stdout, output: Vec::new(), child }
    }

    /// Writes a line to the program's input.
    pub(crate) fn write_line(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Reads output until a line contains `words`, and discards it. Returns the rest of that line.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        loop {
            let from = self.output.len();
            let len = self.stdout.read_until(b'\n', &mut self.output).unwrap();
            assert!(len > 0, "the output is not {words:?} but {}", String::from_utf8_lossy(&self.output));
            let line = String::from_utf8_lossy(&self.output[from..]).into_owned();
            if let Some((_, rest)) = line.split_once(words) {
                self.output.clear();
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Reports why a test was skipped. The test harness would swallow eprintln!.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
