//! Processes that give up, lie or are killed, at each step: the other one goes on, and clients notice nothing.

mod processes;
mod relay;

use super::channel::{Channel, MOST, VERSION, private, wait_for_any};
use super::kind::Kind;
use super::ledger::Ledger;
use super::part::{Go, News, ROUNDS, Way};
use super::{HandOver, HandOverError};
use crate::{Address, CloseCode, Config, Conn, Handler, Message, Server, ServerHandle, Socket, Target};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
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
    fn new(at: &Address) -> Self {
        let (at, stop) = (at.clone(), Arc::new(AtomicBool::new(false)));
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
    SomeAhead,
    SomeConnections,
    AllConnections,
    Taken,
    Ready,
    Committed,
    Running,
}

const STEPS: [Step; 10] = [
    Step::Nothing,
    Step::Hello,
    Step::Offered,
    Step::Started,
    Step::SomeAhead,
    Step::SomeConnections,
    Step::AllConnections,
    Step::Taken,
    Step::Ready,
    Step::Committed,
];

/// Greets, follows the protocol up to and with `last`, and then ends. Returns the sockets that it had, which it never touched.
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
    let mut done = Vec::new();
    while !loops.is_empty() {
        let number = wait_for_any(loops.iter(), patience)?;
        let kind = loops[number].receive()?.kind;
        let ahead = matches!(kind, Kind::Ahead | Kind::AheadAgain);
        if last == Step::SomeAhead || last == Step::SomeConnections && !ahead {
            return Ok(());
        }
        if ahead || kind == Kind::End && last >= Step::Taken {
            loops[number].send(Kind::Taken, &[], &[])?;
        }
        if kind == Kind::End {
            done.push(loops.swap_remove(number));
        }
    }
    if last >= Step::Ready {
        control.send(Kind::Ready, &[], &[])?;
    }
    if last >= Step::Committed {
        control.expect(Kind::Commit)?;
    }
    if last == Step::Running {
        control.send(Kind::Running, &[], &[])?;
    }
    Ok(())
}

/// Names the part that another process has.
const PART: &str = "TAUTLINE_UPGRADE_TEST";

/// Starts this program again, to run the test `part` below alone. Its standard input is `stream`.
fn process(part: &str, stream: UnixStream, variables: &[(&str, &str)]) -> Child {
    let name = format!("{}::part_of_another_process", module_path!().split_once("::").unwrap().1);
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .stdin(Stdio::from(OwnedFd::from(stream)))
        .stdout(if variables.is_empty() { Stdio::null() } else { Stdio::piped() })
        .envs(variables.iter().copied())
        .spawn()
        .unwrap()
}

/// The end of this process, as by `kill -9`.
fn die() -> ! {
    kill_process(getpid(), Signal::KILL).unwrap();
    loop {
        std::thread::park();
    }
}

fn was_killed(mut child: Child) -> bool {
    child.wait().unwrap().signal() == Some(Signal::KILL.as_raw())
}

/// Does nothing in a normal run. The tests below start it in processes of their own.
#[test]
fn part_of_another_process() {
    let Ok(part) = std::env::var(PART) else { return };
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    match part.split_once(' ').unwrap() {
        ("new", step) => {
            let step: usize = step.parse().unwrap();
            begin(stream, STEPS[step]).unwrap();
        }
        ("alone", _) => {
            let _alone = private(stream).unwrap();
            let child = Command::new("sleep").arg("30").spawn().unwrap();
            // This process dies before its child.
            std::mem::forget(child);
        }
        ("tls-old", _) => processes::old_process(stream),
        ("tls-new", _) => processes::new_process(stream),
        (_, path) => hand_over_and_die(UnixStream::connect(path).unwrap(), &stream),
    }
    die();
}

/// Serves, and hands over through a relay, which ends this process before it passes on the frame that `told` names.
fn hand_over_and_die(to: UnixStream, mut told: &UnixStream) {
    let old = serve();
    writeln!(&to, "{}", old.addresses()[0]).unwrap();
    let mut kind = [0];
    told.read_exact(&mut kind).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    std::thread::spawn(move || old.hand_over(near, &HandOver::default()));
    let patience = Duration::from_secs(60);
    let (mut far, mut to) = (Channel::new(far, patience).unwrap(), Channel::new(to, patience).unwrap());
    let pass = |from: &mut Channel, to: &mut Channel| {
        let frame = from.receive().unwrap();
        if frame.kind as u8 == kind[0] {
            die();
        }
        let fds: Vec<_> = frame.fds.iter().map(AsFd::as_fd).collect();
        to.send(frame.kind, &frame.content, &fds).unwrap();
        frame.kind
    };
    pass(&mut to, &mut far);
    while pass(&mut far, &mut to) != Kind::Offered {}
    pass(&mut to, &mut far);
    pass(&mut to, &mut far);
    pass(&mut far, &mut to);
    pass(&mut to, &mut far);
}

#[test]
fn connections_go_on_exactly_if_the_old_process_is_killed_after_commit() {
    // `Commit` itself does not arrive. Before it, connections end with the old process, as they would without an upgrade.
    for (kind, survive) in [(Kind::Started, false), (Kind::Ready, false), (Kind::Commit, false), (Kind::Running, true)]
    {
        let path = std::env::temp_dir().join(format!("tautline-upgrade-{}-{}", std::process::id(), kind as u8));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let old = process(&format!("old {}", path.display()), theirs, &[]);
        let stream = listener.accept().unwrap().0;
        std::fs::remove_file(&path).unwrap();
        let mut address = Vec::new();
        while address.last() != Some(&b'\n') {
            let mut byte = [0];
            (&stream).read_exact(&mut byte).unwrap();
            address.extend(byte);
        }
        let at: Address = str::from_utf8(&address).unwrap().trim().parse().unwrap();
        let clients: Vec<_> = (0..if survive { 8 } else { 0 }).map(|_| Client::new(&at)).collect();
        (&ours).write_all(&[kind as u8]).unwrap();
        let new = server().take_over(stream).start(|_| Count);
        assert!(was_killed(old), "{kind:?}");
        if !survive {
            let error = new.unwrap_err();
            assert!(error.to_string().starts_with("cannot take over"), "{kind:?}: {error}");
            continue;
        }
        let new = new.unwrap();
        assert_eq!(new.addresses()[0], at);
        clients.into_iter().for_each(Client::finish);
        Client::new(&at).finish();
        new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        new.join().unwrap();
    }
}

#[test]
fn a_new_process_that_is_killed_at_any_step_changes_nothing() {
    let old = serve();
    let at = &old.addresses()[0];
    let clients: Vec<_> = (0..8).map(|_| Client::new(at)).collect();
    for (step, last) in STEPS.into_iter().enumerate() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let new = process(&format!("new {step}"), theirs, &[]);
        let error = old.hand_over(ours, &HandOver::default()).unwrap_err();
        assert!(was_killed(new), "{last:?}");
        assert!(old.is_running(), "{last:?}: {error}");
        // Listening goes on, too.
        Client::new(at).finish();
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
fn a_new_process_that_dies_after_running_takes_connections_along_and_nothing_else() {
    let old = serve();
    let at = old.addresses()[0].clone();
    let mut target = Target::new("ws://localhost/").unwrap();
    target.address = Some(at.clone());
    let mut socket = Socket::connect(target, crate::ClientConfig::default(), Config::default()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let new = std::thread::spawn(move || begin(theirs, Step::Running).unwrap());
    let error = old.hand_over(ours, &HandOver::default()).unwrap_err();
    new.join().unwrap();
    assert!(matches!(error, HandOverError::Lost { connections: 1, .. }), "{error}");
    assert!(socket.receive().is_err(), "the old process does not go on with it");
    assert_eq!((old.upgrades().failed, old.upgrades().done), (1, 0));
    // It listens on, and the next upgrade works.
    let client = Client::new(&at);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let giving = old.clone();
    let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
    let new = server().take_over(theirs).start(|_| Count).unwrap();
    assert_eq!(giver.join().unwrap().unwrap().moved, 1);
    old.join().unwrap();
    client.finish();
    new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    new.join().unwrap();
}

#[test]
fn the_end_of_a_process_is_seen_though_its_child_lives_on() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    assert!(was_killed(process("alone -", theirs, &[])));
    ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!((&ours).read(&mut [0]).unwrap(), 0, "the child has a copy of the socket");
}

#[test]
fn loops_without_a_word_go_on_before_commit_and_forget_after_it() {
    for commits in [false, true] {
        let old = server().shards(1).listen("127.0.0.1:0".parse().unwrap()).start(|_| Count).unwrap();
        let mut target = Target::new("ws://localhost/").unwrap();
        target.address = Some(old.addresses()[0].clone());
        let mut socket = Socket::connect(target, crate::ClientConfig::default(), Config::default()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let channel = |stream| Channel::new(stream, Duration::from_secs(20)).unwrap();
        let (ours, mut theirs) = (channel(ours), channel(theirs));
        let part = old.begin(0, Way { channel: ours, ledger: Ledger::default() });
        for _ in 0..ROUNDS {
            assert!(matches!(part.news.recv().unwrap(), Ok(News::Settled)));
            part.go.send(Go::Next).unwrap();
        }
        while theirs.receive().unwrap().kind != Kind::End {}
        theirs.send(Kind::Taken, &[], &[]).unwrap();
        assert!(matches!(part.news.recv().unwrap(), Ok(News::Saved { moved: 1, .. })));
        if commits {
            part.go.send(Go::Commits).unwrap();
        }
        // As by a panic of the thread that coordinates.
        drop(part);
        let answered = socket.text("0").and_then(|()| socket.receive().map(drop));
        assert_eq!(answered.is_ok(), !commits, "{answered:?}");
        old.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        old.join().unwrap();
    }
}

/// A peer sends most of a message that is longer than a frame between the processes can be.
#[test]
fn a_connection_with_too_much_to_move_stays_and_holds_up_no_other() {
    let server = || {
        let mut config = Config::default();
        (config.limits.max_message, config.upgrade.deflate) = (2 * MOST, None);
        Server::plain().shards(1).config(config)
    };
    let old = server().listen("127.0.0.1:0".parse().unwrap()).start(|_| Count).unwrap();
    let at = old.addresses()[0].clone();
    let client = Client::new(&at);
    let mut large = TcpStream::connect(at.to_string()).unwrap();
    large
        .write_all(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    large.write_all(&[&[0x82, 0xff][..], &(2 * MOST as u64).to_be_bytes(), &[0; 4]].concat()).unwrap();
    large.write_all(&vec![b'x'; MOST + 1]).unwrap();
    while old.shards()[0].counters().bytes_in <= MOST as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (ours, theirs) = UnixStream::pair().unwrap();
    let giving = old.clone();
    let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
    let new = server().take_over(theirs).start(|_| Count).unwrap();
    let handed = giver.join().unwrap().unwrap();
    assert_eq!((handed.moved, handed.refused), (1, 1));
    client.finish();
    let mut said = Vec::new();
    large.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let close = [&[0x88][..], &[32], &1012_u16.to_be_bytes(), b"retry-after=0s service restart"].concat();
    while !said.ends_with(&close) {
        let mut byte = [0];
        large.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    drop(large);
    old.join().unwrap();
    new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    new.join().unwrap();
}

#[test]
fn one_upgrade_at_a_time() {
    let old = serve();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let giving = old.clone();
    let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
    let mut new = Channel::new(theirs, Duration::from_secs(20)).unwrap();
    new.send(Kind::Hello, &[VERSION, SAVED_FORMAT], &[]).unwrap();
    new.expect(Kind::Loops).unwrap();
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let error = old.hand_over(ours, &HandOver::default()).unwrap_err();
    assert!(error.to_string().contains("on its way"), "{error}");
    drop(new);
    assert!(giver.join().unwrap().is_err());
    old.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    old.join().unwrap();
}

#[test]
fn a_server_that_drains_is_not_handed_over() {
    let old = serve();
    let client = Client::new(&old.addresses()[0]);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let draining = old.clone();
    // The drain begins when everything has been sent.
    let new = std::thread::spawn(move || {
        let (near, far) = UnixStream::pair().unwrap();
        let taking = std::thread::spawn(move || server().take_over(far).start(|_| Count).map(drop));
        let channel = |stream| Channel::new(stream, Duration::from_secs(20)).unwrap();
        let (mut old, mut new) = (channel(theirs), channel(near));
        let pass = |from: &mut Channel, to: &mut Channel| {
            let frame = from.receive().unwrap();
            if frame.kind == Kind::Ready {
                draining.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
            }
            let fds: Vec<_> = frame.fds.iter().map(AsFd::as_fd).collect();
            to.send(frame.kind, &frame.content, &fds).unwrap();
            frame.kind
        };
        pass(&mut new, &mut old);
        while pass(&mut old, &mut new) != Kind::Offered {}
        pass(&mut new, &mut old);
        pass(&mut new, &mut old);
        // The old process says why.
        let why = old.receive().err().unwrap();
        drop(new);
        (why.to_string(), taking.join().unwrap())
    });
    let error = old.hand_over(ours, &HandOver::default()).unwrap_err();
    assert!(error.to_string().contains("closes its connections"), "{error}");
    let (why, taken) = new.join().unwrap();
    assert!(why.contains("closes its connections") && taken.is_err(), "{why}");
    old.join().unwrap();
    assert!(client.thread.join().is_err(), "it was closed");
}

#[test]
fn a_new_process_that_lies_changes_nothing() {
    let old = serve();
    let client = Client::new(&old.addresses()[0]);
    let answers = [
        (Kind::Hello, vec![VERSION + 1], "speaks version"),
        (Kind::Hello, vec![VERSION, SAVED_FORMAT - 1], "older build"),
        (Kind::Hello, vec![VERSION], "does not speak this protocol"),
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
