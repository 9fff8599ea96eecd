//! Any bytes are events or errors, of which there are no more than bytes, in pieces as in one. The first byte says what the others
//! are: a recording, blocks behind its first bytes, or the content of a block whose checksums are right.

use tautline_feed::record::{Decoder, PREAMBLE, RecordFault};

/// Reads any bytes as a recording.
pub(crate) fn run(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let recording = match first % 3 {
        0 => rest.to_vec(),
        1 => [&PREAMBLE, rest].concat(),
        _ => [&PREAMBLE[..], &block(rest), &block(b"\x01\x00\x00\x00")].concat(),
    };
    let whole = read(&recording, recording.len().max(1));
    assert_eq!(read(&recording, 1 + usize::from(*first) / 3), whole);
}

/// A block of any content.
fn block(content: &[u8]) -> Vec<u8> {
    let compressed = zstd::bulk::compress(content, 1).expect("zstd compresses anything");
    let count = |len: usize| u32::try_from(len).expect("a short input").to_le_bytes();
    let events = content.len().min(5);
    let checksum = crc32fast::hash(&compressed).to_le_bytes();
    let stamp = 7_u64.to_le_bytes();
    let header: [&[u8]; 6] =
        [b"TBLK", &count(compressed.len()), &count(content.len()), &count(events), &stamp, &checksum];
    let header = header.concat();
    let sum = crc32fast::hash(&header).to_le_bytes();
    [header, sum.to_vec(), compressed].concat()
}

/// All events and errors, in words.
fn read(recording: &[u8], piece: usize) -> Vec<String> {
    let mut decoder = Decoder::new().expect("memory for zstd");
    let mut seen = Vec::new();
    for piece in recording.chunks(piece) {
        decoder.push(piece);
        if !read_on(&mut decoder, &mut seen, 2 * recording.len() + 2) {
            return seen;
        }
    }
    while let Err(error) = decoder.finish() {
        seen.push(error.to_string());
        if !read_on(&mut decoder, &mut seen, 2 * recording.len() + 2) {
            return seen;
        }
    }
    seen
}

/// Reads until more bytes are needed. Returns false if none would help.
fn read_on(decoder: &mut Decoder, seen: &mut Vec<String>, most: usize) -> bool {
    loop {
        match decoder.advance() {
            Ok(true) => seen.push(format!("{:?}", decoder.event())),
            Ok(false) => return true,
            Err(error) => {
                seen.push(error.to_string());
                if matches!(error.fault, RecordFault::NoRecording | RecordFault::Version(_)) {
                    return false;
                }
            }
        }
        assert!(seen.len() <= most, "more events and errors than bytes");
    }
}
