use super::{Info, Socket, Transmit, receive};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{Cipher, DATA, Direction, HEAD, NEW_KEYS, REFUSED, TrafficKeys, frame, head};

/// The result of one receive: the type and the content.
type Arrival = Result<(Option<u8>, Vec<u8>), Errno>;

/// A fake kernel that records its sends and keys.
#[derive(Default)]
struct Fake {
    /// Types and contents that were sent, and keys (type 0, the first five bytes of their structure).
    told: RefCell<Vec<(u8, Vec<u8>)>>,
    /// Room in bytes for each of the next sends: 0 refuses the send. Later sends have room for everything.
    room: RefCell<VecDeque<usize>>,
    arrives: RefCell<VecDeque<Arrival>>,
    refuses_keys: Cell<bool>,
    cleared: Cell<bool>,
    sequence: Cell<u64>,
}

impl Socket for Fake {
    fn send(&self, kind: u8, content: &[u8]) -> Result<usize, Errno> {
        let len = match self.room.borrow_mut().pop_front() {
            Some(0) => return Err(Errno::AGAIN),
            Some(room) if kind == DATA => room.min(content.len()),
            _ => content.len(),
        };
        self.told.borrow_mut().push((kind, content[..len].to_vec()));
        self.sequence.set(self.sequence.get() + len.div_ceil(16_384) as u64);
        Ok(len)
    }

    fn receive(&self, content: &mut [u8]) -> Result<(Option<u8>, usize), Errno> {
        let (kind, data) = self.arrives.borrow_mut().pop_front().unwrap_or(Err(Errno::AGAIN))?;
        content[..data.len()].copy_from_slice(&data);
        Ok((kind, data.len()))
    }

    fn set(&self, keys: &Info) -> Result<(), Errno> {
        if self.refuses_keys.get() {
            return Err(Errno::BUSY);
        }
        self.told.borrow_mut().push((0, keys.bytes()[..5].to_vec()));
        self.sequence.set(keys.sequence());
        Ok(())
    }

    fn clear_error(&self) {
        self.cleared.set(true);
    }

    fn sequence(&self, _: &Info) -> Option<u64> {
        Some(self.sequence.get())
    }
}

fn keys(mark: u8, sequence: u64) -> Info {
    let (direction, cipher) = (Direction::Transmit, Cipher::Chacha20Poly1305);
    Info::new(&TrafficKeys { direction, cipher, key: [mark; 32], iv: [mark; 12], sequence })
}

fn put(buf: &mut Buf, kind: u8, content: &[u8]) {
    buf.put(&head(kind, u32::try_from(content.len()).unwrap()));
    buf.put(content);
}

/// A direction whose first keys consist of ones.
fn transmitting(fake: &Fake, sequence: u64) -> Transmit {
    Transmit::begin(keys(1, sequence), fake).unwrap()
}

/// All that was sent, with keys by their mark and the data of successive calls joined.
fn joined(fake: &Fake) -> Vec<(u8, Vec<u8>)> {
    let mut all: Vec<(u8, Vec<u8>)> = Vec::new();
    for (kind, content) in fake.told.borrow().iter() {
        match all.last_mut() {
            Some((DATA, last)) if *kind == DATA => last.extend(content),
            _ => all.push((*kind, content[if *kind == 0 { 4 } else { 0 }..].to_vec())),
        }
    }
    all
}

#[test]
fn frames_arrive_in_order_wherever_the_kernel_stops() {
    let mut expected = None;
    for room in 0..40 {
        let fake = Fake::default();
        let mut transmit = transmitting(&fake, 0);
        fake.room.borrow_mut().extend([room, 0, 1, 0, 3, 0]);
        transmit.give(keys(2, 0));
        let mut buf = Buf::new();
        put(&mut buf, DATA, b"first data");
        put(&mut buf, 22, &[24, 0, 0, 1, 0]);
        put(&mut buf, NEW_KEYS, &[]);
        put(&mut buf, DATA, b"under the next keys");
        put(&mut buf, DATA, b"");
        put(&mut buf, 21, &[1, 0]);
        for _ in 0..8 {
            transmit.send(&fake, &mut buf).unwrap();
        }
        assert!(buf.is_empty(), "{room}");
        let told = joined(&fake);
        assert_eq!(*expected.get_or_insert_with(|| told.clone()), told, "{room}");
    }
    let kinds: Vec<u8> = expected.unwrap().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [0, DATA, 22, 0, DATA, 21]);
}

#[test]
fn what_is_no_frame_is_not_sent() {
    for wrong in [&[DATA, 0, 0][..], &head(21, 3)[..], &head(NEW_KEYS, 0)[..]] {
        let fake = Fake::default();
        let mut transmit = transmitting(&fake, 0);
        let mut buf = Buf::new();
        buf.put(wrong);
        assert!(transmit.send(&fake, &mut buf).is_err(), "{wrong:?}");
        assert_eq!(fake.told.borrow().len(), 1, "the keys alone");
    }
}

#[test]
fn a_key_is_not_used_past_its_limit() {
    let fake = Fake::default();
    let mut transmit = transmitting(&fake, (1 << 24) - 2);
    let mut buf = Buf::new();
    put(&mut buf, DATA, &vec![0; 2 * 16_384]);
    transmit.send(&fake, &mut buf).unwrap();
    put(&mut buf, DATA, &[0]);
    let error = transmit.send(&fake, &mut buf).unwrap_err().to_string();
    assert!(error.contains("6.14"), "{error}");
}

#[test]
fn what_the_kernel_counts_is_believed() {
    let fake = Fake::default();
    let mut transmit = transmitting(&fake, 0);
    fake.sequence.set(1 << 24);
    let mut buf = Buf::new();
    let mut failed = 0;
    // The fake kernel counts 2^24 records more than were sent here; the limit shows when it is asked.
    for sent in 0..=1 << 20 {
        put(&mut buf, 21, &[1, 0]);
        fake.told.borrow_mut().clear();
        if transmit.send(&fake, &mut buf).is_err() {
            failed = sent;
            break;
        }
    }
    assert_eq!(failed, (1 << 20) - 1);
}

#[test]
fn records_are_received_as_frames() {
    let fake = Fake::default();
    fake.arrives.borrow_mut().extend([
        Ok((Some(DATA), b"data".to_vec())),
        Ok((Some(22), vec![])),
        Err(Errno::INTR),
        Ok((None, vec![])),
    ]);
    let mut buf = [0; 64];
    assert_eq!(receive(&fake, &mut buf), Ok((HEAD + 4, true)));
    assert_eq!((frame(&buf), &buf[HEAD..HEAD + 4]), (Some((DATA, 4)), &b"data"[..]));
    assert_eq!(receive(&fake, &mut buf), Ok((HEAD, true)));
    assert_eq!(frame(&buf), Some((22, 0)), "an empty record is not the end");
    assert_eq!(receive(&fake, &mut buf), Err(Errno::INTR));
    assert_eq!(receive(&fake, &mut buf), Ok((0, true)));
}

#[test]
fn the_peers_faults_are_frames_too() {
    for (errno, alert) in [(Errno::BADMSG, 20), (Errno::MSGSIZE, 22), (Errno::INVAL, 10), (Errno::KEYEXPIRED, 10)] {
        let fake = Fake::default();
        fake.arrives.borrow_mut().push_back(Err(errno));
        let mut buf = [0; 64];
        assert_eq!(receive(&fake, &mut buf), Ok((HEAD + 1, false)));
        assert_eq!((frame(&buf), buf[HEAD]), (Some((REFUSED, 1)), alert));
        assert!(fake.cleared.get(), "or the alert could not be sent");
    }
}

#[test]
fn refused_keys_are_told() {
    let fake = Fake::default();
    fake.refuses_keys.set(true);
    assert_eq!(Transmit::begin(keys(1, 0), &fake).err(), Some(Errno::BUSY));
    fake.refuses_keys.set(false);
    let mut transmit = transmitting(&fake, 0);
    transmit.give(keys(2, 0));
    fake.refuses_keys.set(true);
    let mut buf = Buf::new();
    put(&mut buf, NEW_KEYS, &[]);
    assert!(transmit.send(&fake, &mut buf).is_err());
}
