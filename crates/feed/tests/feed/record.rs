//! Recordings that are cut, damaged, or meet a full disk, and a thread that writes too slowly.

use crate::fuzz_record as fuzz;
use crossbeam_channel::{Receiver, bounded};
use proptest::prelude::*;
use proptest::sample::Index;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tautline_feed::record::{
    Chunk, Direction, Event, Kind, MAX_PAYLOAD, PREAMBLE, RecordError, RecordFault, Recorder, Recording, Replay,
    ReplayError, Sealer, Storage, TooLarge,
};

/// An event that owns its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    at: u64,
    connection: u32,
    direction: Direction,
    kind: Kind,
    payload: Vec<u8>,
}

impl Owned {
    fn lent(&self) -> Event<'_> {
        let Self { at, connection, direction, kind, ref payload } = *self;
        Event { at, connection, direction, kind, payload }
    }

    fn of(event: Event<'_>) -> Self {
        let Event { at, connection, direction, kind, payload } = event;
        Self { at, connection, direction, kind, payload: payload.to_vec() }
    }
}

fn event(number: u64) -> Owned {
    let payload = format!("{{\"e\":\"trade\",\"t\":{number},\"p\":\"{}.25\"}}", 60_000 + number % 7).into_bytes();
    let direction = if number.is_multiple_of(9) { Direction::Out } else { Direction::In };
    let connection = u32::try_from(number % 3).unwrap();
    Owned { at: 1_764_300_000_000_000_000 + number * 1_000, connection, direction, kind: Kind::Text, payload }
}

/// The bytes of a recording with the given numbers of events in its blocks, and the offset behind each block.
fn recording(blocks: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let mut sealer = Sealer::new(1).unwrap();
    let (mut bytes, mut ends, mut number) = (PREAMBLE.to_vec(), Vec::new(), 0);
    for count in blocks {
        let mut chunk = Chunk::default();
        for _ in 0..*count {
            chunk.push(&event(number).lent()).unwrap();
            number += 1;
        }
        sealer.seal(&chunk, &mut bytes).unwrap();
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// All events and errors of a recording, with 7 bytes for each call of the system.
fn replay(bytes: &[u8]) -> (Vec<Owned>, Vec<RecordError>) {
    struct Pieces<'a>(&'a [u8]);
    impl io::Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = into.len().min(self.0.len()).min(7);
            io::Read::read(&mut self.0, &mut into[..len])
        }
    }
    let mut replay = Replay::new(Pieces(bytes)).unwrap();
    let (mut events, mut errors) = (Vec::new(), Vec::new());
    loop {
        match replay.next() {
            Ok(Some(event)) => events.push(Owned::of(event)),
            Ok(None) => return (events, errors),
            Err(ReplayError::Record(error)) if errors.last() == Some(&error) => return (events, errors),
            Err(ReplayError::Record(error)) => errors.push(error),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_cut_at_any_byte_costs_only_the_block_that_is_cut() {
    let (bytes, ends) = recording(&[3, 1, 4]);
    let counts = [0, 3, 4, 8];
    for len in 0..=bytes.len() {
        let (events, errors) = replay(&bytes[..len]);
        let whole = ends.iter().filter(|end| **end <= len).count();
        assert_eq!(events, (0..counts[whole]).map(event).collect::<Vec<_>>(), "cut to {len} bytes");
        let last = if whole > 0 {
            ends[whole - 1]
        } else if len >= PREAMBLE.len() {
            PREAMBLE.len()
        } else {
            0
        };
        let torn = RecordError { offset: last as u64, fault: RecordFault::Torn((len - last) as u64) };
        assert_eq!(errors, if len == last { vec![] } else { vec![torn] }, "cut to {len} bytes");
    }
}

#[test]
fn a_damaged_byte_costs_only_its_block() {
    let (bytes, ends) = recording(&[3, 1, 4]);
    let starts = [PREAMBLE.len(), ends[0], ends[1]];
    let numbers = [0..3, 3..4, 4..8];
    for at in PREAMBLE.len()..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        let (events, errors) = replay(&damaged);
        let hit = ends.iter().filter(|end| **end <= at).count();
        let left =
            numbers.iter().enumerate().filter(|(block, _)| *block != hit).flat_map(|(_, numbers)| numbers.clone());
        assert_eq!(events, left.map(event).collect::<Vec<_>>(), "byte {at}");
        assert!(!errors.is_empty() && errors[0].offset == starts[hit] as u64, "{errors:?} for byte {at}");
        // After damage in the last block, nothing but its own bytes is left.
        assert_eq!(errors.len(), 1, "{errors:?} for byte {at}");
    }
}

#[test]
fn other_files_and_later_versions_are_refused() {
    assert_eq!(replay(b"PK\x03\x04 and more").1, [RecordError { offset: 0, fault: RecordFault::NoRecording }]);
    assert_eq!(replay(b"TAUTREC\x02").1, [RecordError { offset: 0, fault: RecordFault::Version(2) }]);
    assert_eq!(replay(b""), (vec![], vec![]));
}

#[test]
fn a_payload_beyond_the_limit_is_refused_and_the_largest_is_kept() {
    let mut large = event(0);
    large.payload = vec![b'x'; MAX_PAYLOAD + 1];
    let mut chunk = Chunk::default();
    assert_eq!(chunk.push(&large.lent()), Err(TooLarge));
    assert_eq!(chunk.events(), 0);
    large.payload.pop();
    chunk.push(&large.lent()).unwrap();
    let mut bytes = PREAMBLE.to_vec();
    Sealer::new(1).unwrap().seal(&chunk, &mut bytes).unwrap();
    assert_eq!(Owned::of(Replay::new(&bytes[..]).unwrap().next().unwrap().unwrap()), large);
}

/// A file in a folder of its own, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tautline-feed-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("feed.rec")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_has_all_events_in_order() {
    let folder = Folder::new("order");
    let mut recorder = Recorder::create(folder.file(), &Recording::default()).unwrap();
    for number in 0..20_000 {
        recorder.record(event(number).lent());
        if number == 5 {
            recorder.flush();
        }
    }
    let status = recorder.finish().unwrap();
    assert_eq!((status.written, status.lost, status.error), (20_000, 0, None));
    let bytes = fs::read(folder.file()).unwrap();
    assert_eq!(status.bytes, bytes.len() as u64);
    let mut replay = Replay::open(folder.file()).unwrap();
    for number in 0..20_000 {
        assert_eq!(Owned::of(replay.next().unwrap().unwrap()), event(number));
    }
    assert!(replay.next().unwrap().is_none());
    // An existing recording is never overwritten.
    let error = Recorder::create(folder.file(), &Recording::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn a_recorder_that_is_dropped_has_written_its_events() {
    let folder = Folder::new("dropped");
    let mut recorder = Recorder::create(folder.file(), &Recording::default()).unwrap();
    recorder.record(event(0).lent());
    drop(recorder);
    assert_eq!(replay(&fs::read(folder.file()).unwrap()), (vec![event(0)], vec![]));
}

#[test]
fn events_that_are_far_apart_do_not_wait_for_each_other() {
    let folder = Folder::new("apart");
    let mut recorder = Recorder::create(folder.file(), &Recording::default()).unwrap();
    recorder.record(event(0).lent());
    let mut later = event(1);
    later.at += 1_000_000_000;
    recorder.record(later.lent());
    // The first one is on its way, although its block is not full.
    while recorder.status().written == 0 {
        std::thread::yield_now();
    }
    assert_eq!(recorder.status().written, 1);
}

#[test]
fn a_disk_that_is_full_from_the_start_is_an_error() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let error = Recorder::with(Box::new(full), &Recording::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

/// Bytes with a limit, which the test may lift.
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: Arc<Mutex<usize>>,
    can_cut: bool,
}

impl Storage for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut held, room) = (self.bytes.lock().unwrap(), *self.room.lock().unwrap());
        let fits = bytes.len().min(room.saturating_sub(held.len()));
        held.extend_from_slice(&bytes[..fits]);
        if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        if !self.can_cut {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.bytes.lock().unwrap().truncate(usize::try_from(len).unwrap());
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records until the disk is full at some byte, and goes on when it has room again. Returns the bytes of the disk.
fn with_a_full_disk(room: usize, can_cut: bool) -> Vec<u8> {
    let (bytes, limit) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(room)));
    let disk = Disk { bytes: bytes.clone(), room: limit.clone(), can_cut };
    let mut recorder = Recorder::with(Box::new(disk), &Recording::default()).unwrap();
    let settle = |recorder: &mut Recorder, count: u64| {
        recorder.flush();
        while recorder.status().written + recorder.status().lost < count {
            std::thread::yield_now();
        }
    };
    for number in 0..6 {
        recorder.record(event(number).lent());
        settle(&mut recorder, number + 1);
    }
    *limit.lock().unwrap() = usize::MAX;
    recorder.record(event(6).lent());
    let status = recorder.finish().unwrap();
    assert_eq!(status.written + status.lost, 7);
    assert_eq!(status.error.is_some(), status.lost > 0);
    let all = bytes.lock().unwrap().clone();
    let (events, errors) = replay(&all);
    let told: u64 = events.iter().filter_map(|event| event.lent().lost()).sum();
    assert_eq!(told, status.lost, "{room} bytes");
    let kept: Vec<Owned> = events.into_iter().filter(|event| event.kind != Kind::Lost).collect();
    assert_eq!(kept.len() as u64, status.written);
    // All events up to the full disk, and those after it.
    let before = status.written - 1;
    assert_eq!(kept, (0..before).chain([6]).map(event).collect::<Vec<_>>(), "{room} bytes");
    assert!(errors.is_empty() || !can_cut, "{errors:?}");
    all
}

#[test]
fn a_full_disk_loses_nothing_before_it() {
    let whole = with_a_full_disk(usize::MAX, true).len();
    // Rooms end in headers and in contents of each block but the last, which always finds room.
    for room in (PREAMBLE.len()..whole * 6 / 7).step_by(7) {
        let _ = with_a_full_disk(room, true);
        let _ = with_a_full_disk(room, false);
    }
}

/// A disk that stands still until the test lets it go.
struct Slow {
    file: File,
    go: Receiver<()>,
}

impl Storage for Slow {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > PREAMBLE.len() {
            // An error means that the test has let go for good.
            let _ = self.go.recv();
        }
        self.file.append(bytes)
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.cut(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

#[test]
fn a_slow_disk_costs_events_that_are_counted_and_told() {
    let folder = Folder::new("slow");
    let (let_go, go) = bounded(0);
    let storage = Slow { file: File::create_new(folder.file()).unwrap(), go };
    let mut recording = Recording::default();
    (recording.block, recording.waiting) = (4096, 2);
    let mut recorder = Recorder::with(Box::new(storage), &recording).unwrap();
    for number in 0..2_000 {
        recorder.record(event(number).lent());
    }
    let lost = recorder.status().lost;
    // Three or four blocks of 4 KiB hold less than half of the events.
    assert!((1_000..2_000).contains(&lost), "{lost} events are lost");
    drop(let_go);
    // As soon as a block is free again, events are kept, behind one that tells of those that were lost.
    let mut number = 2_000;
    while recorder.status().lost == lost + (number - 2_000) {
        recorder.record(event(number).lent());
        number += 1;
    }
    let status = recorder.finish().unwrap();
    let (events, errors) = replay(&fs::read(folder.file()).unwrap());
    let told: u64 = events.iter().filter_map(|event| event.lent().lost()).sum();
    let kept = events.iter().filter(|event| event.kind != Kind::Lost).count() as u64;
    assert_eq!((told, kept + told, errors), (status.lost, number, vec![]));
}

proptest! {
    #[test]
    fn events_of_any_kind_survive(
        events in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<bool>(), 0..128_u8, proptest::collection::vec(any::<u8>(), 0..200)), 1..40),
        blocks in proptest::collection::vec(any::<Index>(), 0..4),
    ) {
        let kind = |number| match number {
            0 => Kind::Opened,
            1 => Kind::Text,
            2 => Kind::Binary,
            3 => Kind::Ping,
            4 => Kind::Pong,
            5 => Kind::Closed,
            6 => Kind::Http,
            7 => Kind::Lost,
            other => Kind::Other(other),
        };
        let events: Vec<Owned> = events
            .into_iter()
            .map(|(at, connection, is_out, number, payload)| {
                let direction = if is_out { Direction::Out } else { Direction::In };
                Owned { at, connection, direction, kind: kind(number), payload }
            })
            .collect();
        let ends: Vec<usize> = blocks.iter().map(|place| place.index(events.len())).collect();
        let (mut sealer, mut bytes, mut chunk) = (Sealer::new(3).unwrap(), PREAMBLE.to_vec(), Chunk::default());
        for (index, event) in events.iter().enumerate() {
            chunk.push(&event.lent()).unwrap();
            if ends.contains(&index) || index + 1 == events.len() {
                sealer.seal(&chunk, &mut bytes).unwrap();
                chunk = Chunk::default();
            }
        }
        prop_assert_eq!(replay(&bytes), (events, vec![]));
    }

    #[test]
    fn random_bytes_are_events_or_errors(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        fuzz::run(&bytes);
    }
}
