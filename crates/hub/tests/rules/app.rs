//! An application that a hub asks.

use crate::bench::HOOK_SECRET;
use aws_lc_rs::hmac::{HMAC_SHA256, Key, verify};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) body: Value,
}

/// The reply of an application: the head's further lines, and the body. `None` is none at all.
pub(crate) type Answer = Option<(&'static str, String)>;

/// An application, and all that it was asked.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
}

impl App {
    pub(crate) fn new(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), answer)
    }

    pub(crate) fn at(address: SocketAddr, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, is_over, answer) =
            (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default(), Arc::new(answer));
        let (log, over) = (asked.clone(), is_over.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || serve(&stream.unwrap(), &log, &*answer));
            }
        });
        Self { address, asked, is_over }
    }

    /// Rules that ask this application.
    pub(crate) fn rules(&self, more: &str) -> String {
        format!("[hooks]\nurl = \"http://{}/hub\"\nsecret = \"hook.secret\"\n{more}\n", self.address)
    }

    /// All questions of this kind so far.
    pub(crate) fn asked(&self, kind: &str) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.body["type"] == kind).cloned().collect()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Its thread looks at that after another connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: &TcpStream, log: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Answer) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = header(&head, "content-length").unwrap().parse().unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        check(&head, &body);
        let asked = Asked { body: serde_json::from_slice(&body).unwrap() };
        log.lock().unwrap().push(asked.clone());
        let Some((more, body)) = answer(&asked) else { return };
        let status = if more.starts_with("HTTP/") { "" } else { "HTTP/1.1 200 OK\r\n" };
        let answer = format!("{status}{more}Content-Length: {}\r\n\r\n{body}", body.len());
        if (&mut &*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The value of a header.
pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Checks the signature as an application does.
fn check(head: &str, body: &[u8]) {
    let value = header(head, "tautline-signature").unwrap();
    let (time, tag) = value.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(time.parse().unwrap()) < 120, "{value}");
    let bytes: Vec<u8> =
        (0..tag.len()).step_by(2).map(|at| u8::from_str_radix(&tag[at..at + 2], 16).unwrap()).collect();
    let signed = [time.as_bytes(), b".", body].concat();
    verify(&Key::new(HMAC_SHA256, HOOK_SECRET.as_bytes()), &signed, &bytes).unwrap();
}
