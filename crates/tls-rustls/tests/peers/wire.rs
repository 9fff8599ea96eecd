//! Our end of a connection on a socket, and programs at the other.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::End;
use tautline_tls::{Certificate, Error, Session};
use tautline_tls_rustls::fused;

const PATIENCE: Duration = Duration::from_secs(20);

/// A folder with what the other end needs, and what our side needs.
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
        let certificate = authority.issue(&Leaf { names: &["localhost"], key, ..Leaf::default() }).unwrap();
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

/// A session whose keys can be changed by hand.
pub(crate) trait Rekey: Session {
    /// Says so to the peer, and asks it to do the same where `ask`. Returns whether this session can.
    fn rekey(end: &mut End<Self>, ask: bool) -> bool
    where
        Self: Sized;
}

impl Rekey for fused::Session {
    fn rekey(end: &mut End<Self>, ask: bool) -> bool {
        if end.session.facts().version == "TLSv1.2" {
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

/// Our end.
pub(crate) struct Wire<S> {
    pub(crate) end: End<S>,
    socket: TcpStream,
}

impl<S: Session> Wire<S> {
    /// Shakes hands.
    pub(crate) fn new(session: S, socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
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

    /// Reads until these bytes have come.
    pub(crate) fn hears(&mut self, words: &str) {
        self.until(words, |end| contains(&end.received, words.as_bytes()));
    }

    /// The peer closes, then we do, and the stream ends.
    pub(crate) fn closes(mut self) {
        self.until("close_notify", |end| end.closed);
        self.end.close();
        self.flush();
        self.ends();
    }

    /// We close, then the peer does, and the stream ends.
    pub(crate) fn leaves(mut self) {
        self.end.close();
        self.until("the answer to close_notify", |end| end.closed);
        self.ends();
    }

    /// What there is; a signal may have come.
    fn read(&mut self, piece: &mut [u8]) -> usize {
        loop {
            match self.socket.read(piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.unwrap(),
            }
        }
    }

    fn ends(&mut self) {
        self.socket.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(self.socket.read_to_end(&mut Vec::new()).is_ok());
    }

    /// Changes what the peer says next on its way; the alert that this earns is sent.
    pub(crate) fn forges_what_comes(&mut self) {
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

    /// Changes what we say on its way; returns what the peer answers.
    pub(crate) fn forges_what_goes(&mut self) -> Error {
        self.end.send(&[b"this will not arrive as it was"]).unwrap();
        let mut record = self.end.take_outbox();
        record[10] ^= 1;
        self.socket.write_all(&record).unwrap();
        let mut piece = [0; 4096];
        loop {
            let len = self.read(&mut piece);
            assert!(len > 0, "no alert comes");
            if let Err(error) = self.end.deliver(&piece[..len]) {
                return error;
            }
        }
    }
}

/// A program that is spoken with; killed at the end.
pub(crate) struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    said: Vec<u8>,
}

impl Program {
    /// Starts it; what it has to complain of is among what it says.
    pub(crate) fn start(command: &Command) -> Self {
        // One stream of both, by way of a shell, which passes its arguments on as they are.
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(command.get_program()).args(command.get_args());
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { stdin: child.stdin.take(), stdout, said: Vec::new(), child }
    }

    /// Types a line.
    pub(crate) fn tell(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Reads what it says until `words` are among it, and forgets what came before them; gives the rest of their line.
    pub(crate) fn says(&mut self, words: &str) -> String {
        loop {
            let from = self.said.len();
            let len = self.stdout.read_until(b'\n', &mut self.said).unwrap();
            assert!(len > 0, "it does not say {words:?} but {}", String::from_utf8_lossy(&self.said));
            let line = String::from_utf8_lossy(&self.said[from..]).into_owned();
            if let Some((_, rest)) = line.split_once(words) {
                self.said.clear();
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

/// Says why nothing was tried. Not by eprintln!, which the test harness swallows.
pub(crate) fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}
