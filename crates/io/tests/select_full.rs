//! The select driver where its sets are full, alone in the process.

#[expect(dead_code, reason = "the rest of the suite runs in another binary")]
mod suite;

use std::net::TcpStream;
use suite::{Event, listen, run, watch};
use tautline_io::select::{Driver, FD_SETSIZE};

#[test]
fn descriptors_past_the_set_are_refused() {
    tautline_io::machine::raise_nofile_limit().unwrap();
    let mut driver = Driver::new().unwrap();
    let mut script = watch();
    let at = listen(&mut driver);
    let hoard: Vec<_> = (0..FD_SETSIZE).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let mut late = TcpStream::connect(at).unwrap();
    run(&mut driver, &mut script, |script| !script.events.is_empty());
    assert_eq!(script.events, [Event::AcceptFailed(std::io::ErrorKind::Other)]);
    assert_eq!(std::io::Read::read(&mut late, &mut [0]).unwrap(), 0, "it is not left waiting");
    let refused = tautline_io::Driver::connect(&mut driver, &at.into()).unwrap();
    run(&mut driver, &mut script, |script| script.failures() == [refused]);
    drop(hoard);
    let _early = TcpStream::connect(at).unwrap();
    run(&mut driver, &mut script, |script| !script.arrivals().is_empty());
}
