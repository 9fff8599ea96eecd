//! Processes that give up, lie or are killed, at each step: the other one goes on, and clients notice nothing.

use super::HandOver;
use super::arriving::Arriving;
use super::channel::{ADDITIONS, Channel, Kind, VERSION, wait_for_any};
use super::ledger::{Changes, Entry, Ledger};
use crate::{Address, CloseCode, Config, Conn, Handler, Message, Server, ServerHandle, Socket, Target};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{Read, Write};
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

/// The greetings of a build before there were additions to the protocol, of one with the first of them, and of this one.
const GREETINGS: [&[u8]; 3] =
    [&[VERSION, SAVED_FORMAT], &[VERSION, SAVED_FORMAT, 1], &[VERSION, SAVED_FORMAT, ADDITIONS]];

/// Greets, follows the protocol up to and with `last`, and then ends. Returns the sockets that it had, which it never touched.
fn begin(stream: UnixStream, greeting: &[u8], last: Step) -> std::io::Result<()> {
    let patience = Duration::from_secs(20);
    let mut control = Channel::new(stream, patience)?;
    if last == Step::Nothing {
        return Ok(());
    }
    control.send(Kind::Hello, greeting, &[])?;
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
    if last == Step::Committed {
        control.expect(Kind::Commit)?;
    }
    Ok(())
}

/// Names the part that another process has.
const PART: &str = "TAUTLINE_UPGRADE_TEST";

/// Starts this program again, to run the test `part` below alone. Its standard input is `stream`.
fn process(part: &str, stream: UnixStream) -> Child {
    let name = format!("{}::part_of_another_process", module_path!().split_once("::").unwrap().1);
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .stdin(Stdio::from(OwnedFd::from(stream)))
        .stdout(Stdio::null())
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
            begin(stream, GREETINGS[step % GREETINGS.len()], STEPS[step / GREETINGS.len()]).unwrap();
        }
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
fn connections_survive_an_old_process_that_is_killed() {
    // Until all are saved, they end with the old process, as they would without an upgrade.
    for (kind, survive) in [(Kind::Started, false), (Kind::Ready, true), (Kind::Commit, true), (Kind::Running, true)] {
        let path = std::env::temp_dir().join(format!("tautline-upgrade-{}-{}", std::process::id(), kind as u8));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let old = process(&format!("old {}", path.display()), theirs);
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
        let new = server().take_over(stream).start(|_| Count).unwrap();
        assert!(was_killed(old), "{kind:?}");
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
    for step in 0..STEPS.len() * GREETINGS.len() {
        let last = STEPS[step / GREETINGS.len()];
        let (ours, theirs) = UnixStream::pair().unwrap();
        let new = process(&format!("new {step}"), theirs);
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

/// The part of the old process that ends: of two connections that it has sent ahead, it sends one's last state.
fn send_one_of_two(old: &ServerHandle, new: &ServerHandle) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let channel = |stream| Channel::new(stream, Duration::from_secs(20)).unwrap();
    let (mut ours, theirs) = (channel(ours), channel(theirs));
    let (tell, told) = std::sync::mpsc::channel();
    let new = new.clone();
    old.run_on(0, move |shard| {
        let mut ledger = Ledger::default();
        shard.begin_move();
        let slice = ledger.send_slice(&mut ours, shard, 0, true).unwrap();
        assert_eq!((slice.next, slice.sent), (None, 2));
        shard.hold_still().unwrap();
        let (mut changes, mut conns) = (Changes::new(), Vec::new());
        let sent = shard.save(&mut |conn, _, saved| {
            assert!(matches!(ledger.entry(conn, saved), Entry::Same));
            conns.push(conn);
            if conns.len() == 1 { changes.add(&mut ours, 0, saved) } else { Ok(()) }
        });
        sent.unwrap();
        changes.send(&mut ours).unwrap();
        let (taken, took) = std::sync::mpsc::channel();
        new.run_on(0, move |shard| {
            let mut arriving = Arriving::new(theirs);
            for _ in 0..2 {
                assert!(arriving.receive(shard).unwrap().is_none());
            }
            arriving.keep_last_states(shard);
            shard.begin_restored();
            taken.send(()).unwrap();
        });
        took.recv().unwrap();
        shard.give_away(&conns[..1]);
        tell.send(()).unwrap();
    });
    told.recv().unwrap();
}

#[test]
fn connections_without_a_last_state_end_with_the_old_process() {
    let serve = || server().shards(1).listen("127.0.0.1:0".parse().unwrap()).start(|_| Count).unwrap();
    let (old, new) = (serve(), serve());
    let clients: Vec<_> = (0..2).map(|_| Client::new(&old.addresses()[0])).collect();
    send_one_of_two(&old, &new);
    let open = |server: &ServerHandle| server.shards()[0].counters().open;
    assert_eq!((open(&old), open(&new)), (1, 1));
    clients.into_iter().for_each(Client::finish);
    for server in [old, new] {
        server.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        server.join().unwrap();
    }
}

/// Passes frames between two processes, and takes the additions out of the greeting. Returns the kinds that the new one sent.
fn relay_without_additions(old: UnixStream, new: UnixStream) -> Vec<Kind> {
    let patience = Duration::from_secs(60);
    let (mut old, mut new) = (Channel::new(old, patience).unwrap(), Channel::new(new, patience).unwrap());
    let mut said = Vec::new();
    let pass = |from: &mut Channel, to: &mut Channel| {
        let frame = from.receive().unwrap();
        let content = if frame.kind == Kind::Hello { &frame.content[..2] } else { &frame.content[..] };
        assert!(frame.kind != Kind::Commit || content.is_empty(), "a build before expects nothing in it");
        let fds: Vec<_> = frame.fds.iter().map(AsFd::as_fd).collect();
        to.send(frame.kind, content, &fds).unwrap();
        frame.kind
    };
    said.push(pass(&mut new, &mut old));
    while pass(&mut old, &mut new) != Kind::Offered {}
    said.push(pass(&mut new, &mut old));
    said.push(pass(&mut new, &mut old));
    pass(&mut old, &mut new);
    said.push(pass(&mut new, &mut old));
    // The new process says nothing more.
    said.extend(new.receive().ok().map(|frame| frame.kind));
    said
}

#[test]
fn builds_without_additions_take_over_and_are_taken_over() {
    let old = serve();
    let clients: Vec<_> = (0..20).map(|_| Client::new(&old.addresses()[0])).collect();
    let ((ours, to_old), (theirs, to_new)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    let relay = std::thread::spawn(move || relay_without_additions(to_old, to_new));
    let giving = old.clone();
    let giver = std::thread::spawn(move || giving.hand_over(ours, &HandOver::default()));
    let new = server().take_over(theirs).start(|_| Count).unwrap();
    assert_eq!(giver.join().unwrap().unwrap().moved, 20);
    assert_eq!(relay.join().unwrap(), [Kind::Hello, Kind::Started, Kind::Ready, Kind::Running]);
    old.join().unwrap();
    clients.into_iter().for_each(Client::finish);
    new.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
    new.join().unwrap();
}

#[test]
fn a_new_process_that_lies_changes_nothing() {
    let old = serve();
    let client = Client::new(&old.addresses()[0]);
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
