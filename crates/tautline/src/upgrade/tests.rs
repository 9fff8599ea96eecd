//! A new process that gives up, lies or ends at each step: the old one goes on, and its clients notice nothing.

use super::HandOver;
use super::channel::{Channel, Kind, VERSION};
use crate::{CloseCode, Config, Conn, Handler, Message, Server, ServerHandle, Socket, Target};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tautline_engine::SAVED_FORMAT;

struct Count;

impl Handler for Count {
    type State = u64;

    fn on_message(&mut self, conn: &mut Conn<'_, u64>, message: Message<'_>) {
        *conn.state() += 1;
        let count = *conn.state();
        conn.text(&format!("{count} {}", String::from_utf8_lossy(message.data())));
    }

    fn save_state(&mut self, state: &mut u64, out: &mut Vec<u8>) -> bool {
        out.extend(state.to_be_bytes());
        true
    }

    fn restore_state(&mut self, saved: &[u8]) -> Option<u64> {
        saved.try_into().ok().map(u64::from_be_bytes)
    }
}

fn server() -> Server<crate::Plain> {
    let mut config = Config::default();
    config.upgrade.deflate = None;
    Server::plain().shards(2).config(config)
}

fn serve() -> ServerHandle {
    server().listen("127.0.0.1:0".parse().unwrap()).start(|_| Count).unwrap()
}

/// A client that talks until it is told to stop, and checks each answer.
struct Client {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Client {
    fn new(server: &ServerHandle) -> Self {
        let (at, stop) = (server.addresses()[0].clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut target = Target::new("ws://localhost/").unwrap();
            target.address = Some(at);
            target.deflate = None;
            let mut socket = Socket::connect(target, crate::ClientConfig::default(), Config::default()).unwrap();
            let mut number = 0_u64;
            while !stopped.load(Ordering::Relaxed) {
                socket.text(&number.to_string()).unwrap();
                let answer = socket.receive().unwrap();
                assert_eq!(String::from_utf8_lossy(answer.data()), format!("{} {number}", number + 1));
                number += 1;
                let _ = tell.send(());
            }
            number
        });
        told.recv().unwrap();
        Self { stop, thread }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.thread.join().unwrap() > 0);
    }
}

/// The steps of a new process, of which it does the first ones.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Step {
    Nothing,
    Hello,
    Offered,
    Started,
    SomeConnections,
    AllConnections,
    Taken,
    Ready,
    Committed,
}

const STEPS: [Step; 9] = [
    Step::Nothing,
    Step::Hello,
    Step::Offered,
    Step::Started,
    Step::SomeConnections,
    Step::AllConnections,
    Step::Taken,
    Step::Ready,
    Step::Committed,
];

/// Follows the protocol up to and with `last`, and then ends. Returns the sockets that it had, which it never touched.
fn begin(stream: UnixStream, last: Step) -> std::io::Result<()> {
    let patience = Duration::from_secs(20);
    let mut control = Channel::new(stream, patience)?;
    if last == Step::Nothing {
        return Ok(());
    }
    control.send(Kind::Hello, &[VERSION, SAVED_FORMAT], &[])?;
    if last == Step::Hello {
        return Ok(());
    }
    control.expect(Kind::Loops)?;
    let mut loops = Vec::new();
    loop {
        let mut frame = control.receive()?;
        match frame.kind {
            Kind::Loops => loops.push(Channel::new(frame.fds.pop().unwrap().into(), patience)?),
            Kind::Listening => {}
            _ => break,
        }
    }
    if last == Step::Offered {
        return Ok(());
    }
    control.send(Kind::Started, &[], &[])?;
    if last == Step::Started {
        return Ok(());
    }
    for from in &mut loops {
        while from.receive()?.kind != Kind::End {
            if last == Step::SomeConnections {
                return Ok(());
            }
        }
        if last >= Step::Taken {
            from.send(Kind::Taken, &[], &[])?;
        }
    }
    if last >= Step::Ready {
        control.send(Kind::Ready, &[], &[])?;
    }
    if last == Step::Committed {
        control.expect(Kind::Commit)?;
    }
    Ok(())
}

#[test]
fn a_new_process_that_ends_at_any_step_changes_nothing() {
    let old = serve();
    let clients: Vec<_> = (0..8).map(|_| Client::new(&old)).collect();
    for last in STEPS {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let new = std::thread::spawn(move || begin(theirs, last).map_err(|error| error.to_string()));
        let error = old.hand_over(ours, &HandOver::default()).unwrap_err();
        assert_eq!(new.join().unwrap(), Ok(()), "{last:?}");
        assert!(old.is_running(), "{last:?}: {error}");
        // Listening goes on, too.
        Client::new(&old).finish();
    }
    // And the next one takes over.
    let (ours, theirs) = UnixStream::pair().unwrap();
    let giving = old.clone();
    let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
    let new = server().take_over(theirs).start(|_| Count).unwrap();
    assert_eq!(giver.join().unwrap().unwrap().moved, 8);
    old.join().unwrap();
    clients.into_iter().for_each(Client::finish);
    new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    new.join().unwrap();
}

#[test]
fn a_new_process_that_lies_changes_nothing() {
    let old = serve();
    let client = Client::new(&old);
    let answers = [
        (Kind::Hello, vec![VERSION + 1], "speaks version"),
        (Kind::Hello, vec![VERSION, SAVED_FORMAT - 1], "older build"),
        (Kind::Hello, vec![VERSION], "older build"),
        (Kind::Hello, vec![], "does not speak this protocol"),
        (Kind::Running, vec![], "does not speak this protocol"),
        (Kind::Abort, vec![], "gave up"),
    ];
    for (kind, content, why) in answers {
        let (ours, theirs) = UnixStream::pair().unwrap();
        Channel::new(theirs, Duration::from_secs(20)).unwrap().send(kind, &content, &[]).unwrap();
        let error = old.hand_over(ours, &HandOver::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    client.finish();
    old.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    old.join().unwrap();
}

#[test]
fn an_old_process_that_lies_or_ends_does_not_begin_a_server() {
    let start = |stream| server().take_over(stream).start(|_| Count).map(drop);
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(ours);
    assert!(start(theirs).is_err());
    let frames: [&[(Kind, &[u8])]; 4] = [
        &[(Kind::Loops, &[VERSION + 1, 0, 0, 0, 0])],
        &[(Kind::Loops, &[VERSION, 0, 0, 0, 1]), (Kind::Offered, &[])],
        &[(Kind::Loops, &[VERSION, 0, 0, 0, 0]), (Kind::Commit, &[])],
        &[(Kind::Loops, &[VERSION, 0, 0, 0, 0]), (Kind::Offered, &[]), (Kind::Abort, b"changed my mind")],
    ];
    for frames in frames {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut old = Channel::new(ours, Duration::from_secs(20)).unwrap();
        for (kind, content) in frames {
            old.send(*kind, content, &[]).unwrap();
        }
        let error = start(theirs).unwrap_err();
        assert!(error.to_string().starts_with("cannot take over"), "{error}");
    }
}
