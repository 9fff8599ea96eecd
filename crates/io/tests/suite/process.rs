//! Tests that concern the whole process: signals and the limit of descriptors. A binary runs them in its only test.
#![expect(unreachable_pub, reason = "each driver's test binary includes this module and is a crate of its own")]
#![expect(clippy::unwrap_used, reason = "all of this runs inside a test")]

use crate::suite::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;
use tautline_io::{Address, Driver};

pub fn running_out<D: Driver>(make: fn() -> D) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..limit }).unwrap();
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let (mut first, _) = pair(&mut driver, &mut script, at);
    let mut waiting = TcpStream::connect(at).unwrap();
    let mut hoard = Vec::new();
    let full = loop {
        match File::open("/dev/null") {
            Ok(file) => hoard.push(file),
            Err(error) => break error,
        }
    };
    run(&mut driver, &mut script, |script| script.events.len() > 1);
    assert_eq!(script.events[1..], [Event::AcceptFailed(full.kind())]);

    // Over several pauses the failure is reported once, the driver does not spin, and connections go on.
    let turns = idle(&mut driver, &mut script, Duration::from_millis(350));
    assert!(turns <= 60, "{turns} turns: the driver spins");
    assert_eq!(script.events.len(), 2, "reported once: {:?}", script.events);
    first.write_all(b"fine").unwrap();
    run(&mut driver, &mut script, |script| script.events.len() == 3);
    first.read_exact(&mut [0; 4]).unwrap();
    assert!(driver.connect(&Address::Tcp(at)).is_err(), "no socket can be made");

    // Pausing and resuming by hand meanwhile must not end the rest early.
    driver.pause_accept(true);
    driver.pause_accept(false);
    let turns = idle(&mut driver, &mut script, Duration::from_millis(50));
    assert!(turns <= 10, "{turns} turns: the driver spins");

    // It goes on by itself.
    hoard.clear();
    run(&mut driver, &mut script, |script| script.arrivals().len() == 2);
    waiting.write_all(b"at last").unwrap();
    run(&mut driver, &mut script, |script| script.bytes_of(script.arrivals()[1]) == b"at last");

    // The next time is reported again.
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    hoard.pop();
    let _late = TcpStream::connect(at).unwrap();
    let failed = |script: &Script<_>| script.events.iter().filter(|e| matches!(e, Event::AcceptFailed(_))).count();
    run(&mut driver, &mut script, |script| failed(script) == 2);

    drop(hoard);
    let raised = tautline_io::machine::raise_nofile_limit().unwrap();
    assert_eq!(Some(raised), limit.maximum);
    assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
}

pub fn connections_that_give_way<D: Driver>(make: fn() -> D) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..limit }).unwrap();
    let mut driver = make();
    let mut script = echo();
    let at = listen(&mut driver);
    let (_first, _) = pair(&mut driver, &mut script, at);
    let (mut second, stays) = pair(&mut driver, &mut script, at);
    script.give_way = vec![script.arrivals()[0]];
    let mut late = TcpStream::connect(at).unwrap();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    run(&mut driver, &mut script, |script| script.arrivals().len() == 3);
    late.write_all(b"late").unwrap();
    let newest = script.arrivals()[2];
    run(&mut driver, &mut script, |script| script.bytes_of(newest) == b"late");
    assert!(script.give_way.is_empty() && !script.events.iter().any(|event| matches!(event, Event::AcceptFailed(_))));
    // Nobody gives way for nobody: the kernel says that descriptors lack also if no connection waits.
    script.give_way = vec![stays];
    idle(&mut driver, &mut script, Duration::from_millis(250));
    assert_eq!(script.give_way, [stays]);
    second.write_all(b"stays").unwrap();
    run(&mut driver, &mut script, |script| script.bytes_of(stays) == b"stays");
    drop(hoard);
    tautline_io::machine::raise_nofile_limit().unwrap();
}

pub fn stopped_and_continued<D: Driver>(make: fn() -> D) {
    let mut driver = make();
    let mut script = echo();
    // Continuing a stopped process ends its epoll_wait(2) with EINTR, with or without a signal handler.
    let mut shell =
        Command::new("sh").args(["-c", "sleep 0.05; kill -STOP $PPID; sleep 0.05; kill -CONT $PPID"]).spawn().unwrap();
    for timeout in [None, Some(Duration::from_millis(200))] {
        let waker = driver.waker();
        let later = thread::spawn(move || {
            thread::sleep(Duration::from_millis(150));
            waker.wake();
        });
        let woken = script.events.len() + 1;
        while script.events.len() < woken {
            driver.turn(timeout, &mut script).unwrap();
        }
        later.join().unwrap();
    }
    assert!(shell.wait().unwrap().success());
}
