use super::bits::TAIL;
use super::{DeflateParams, Deflater, Inflater};
use crate::{Error, Role};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use proptest::prelude::*;
use tautline_buf::Buf;

const TAKEOVER: DeflateParams = params(false, 15);
const NO_TAKEOVER: DeflateParams = params(true, 15);
const HELLO: [u8; 7] = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
const ANY: usize = usize::MAX;

const fn params(forget: bool, bits: u8) -> DeflateParams {
    DeflateParams {
        server_no_context_takeover: forget,
        client_no_context_takeover: forget,
        server_max_window_bits: bits,
        client_max_window_bits: bits,
    }
}

fn inflater(params: &DeflateParams) -> Inflater {
    Inflater::new(params, Role::Server, u32::MAX)
}

fn inflate(inflater: &mut Inflater, pieces: &[&[u8]]) -> Result<Vec<u8>, Error> {
    let mut out = Buf::new();
    for (index, piece) in pieces.iter().enumerate() {
        inflater.inflate(piece, index + 1 == pieces.len(), ANY, &mut out)?;
    }
    Ok(out.filled().to_vec())
}

fn deflate(deflater: &mut Deflater, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = Buf::new();
    for (index, piece) in pieces.iter().enumerate() {
        deflater.deflate(piece, index + 1 == pieces.len(), &mut out).unwrap();
    }
    out.filled().to_vec()
}

/// The naive oracle: compresses one message by itself, in one call.
fn deflate_once(message: &[u8], flush: FlushCompress) -> Vec<u8> {
    let mut out = vec![0; message.len() + message.len() / 8 + 64];
    let mut stream = Compress::new(Compression::new(6), false);
    stream.compress(message, &mut out, flush).unwrap();
    out.truncate(usize::try_from(stream.total_out()).unwrap());
    if flush == FlushCompress::Sync {
        out.truncate(out.len() - TAIL.len());
    }
    out
}

/// The naive oracle: inflates one message by itself, in one call, to `len` bytes.
fn inflate_once(compressed: &[u8], bits: u8, len: usize) -> Vec<u8> {
    let mut out = vec![0; len + 1];
    let mut stream = Decompress::new_with_window_bits(false, bits);
    stream.decompress(&[compressed, &TAIL].concat(), &mut out, FlushDecompress::Sync).unwrap();
    out.truncate(usize::try_from(stream.total_out()).unwrap());
    out
}

fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()[3]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn deflates_as_in_rfc_7692_section_7_2_3() {
    for level in 1..=9 {
        let mut deflater = Deflater::new(&TAKEOVER, Role::Server, level);
        assert_eq!(deflate(&mut deflater, &[b"Hello"]), HELLO, "7.2.3.1, level {level}");
        let again = deflate(&mut deflater, &[b"Hello"]);
        // zlib finds no match at the very beginning of its window; the levels below 4 do.
        if level > 3 {
            assert_eq!(again, [0xf2, 0x00, 0x11, 0x00, 0x00], "7.2.3.2, level {level}");
        } else {
            assert!(again.len() < 5, "7.2.3.2, level {level}: {again:x?}");
        }
    }
    let mut stored = Deflater::new(&TAKEOVER, Role::Server, 0);
    assert!(!stored.compresses());
    assert_eq!(deflate(&mut stored, &[b"Hello"]), b"\x00\x05\x00\xfa\xffHello\x00", "7.2.3.3");
    let mut forgetful = Deflater::new(&NO_TAKEOVER, Role::Server, 6);
    assert_eq!(deflate(&mut forgetful, &[b"Hello"]), HELLO);
    assert_eq!(deflate(&mut forgetful, &[b"Hello"]), HELLO);
    assert_eq!(deflate(&mut forgetful, &[b""]), [0x00], "7.2.3.6");
}

#[test]
fn inflates_the_examples_of_rfc_7692_section_7_2_3() {
    let examples: [(&str, &[u8]); 7] = [
        ("7.2.3.1", &HELLO),
        ("7.2.3.2", &[0xf2, 0x00, 0x11, 0x00, 0x00]),
        ("7.2.3.3", b"\x00\x05\x00\xfa\xffHello\x00"),
        ("7.2.3.5", &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00]),
        ("7.2.3.4", &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00]),
        ("7.2.3.1 again", &HELLO),
        ("7.2.3.4, cut by a sender that flushes with BFINAL only", &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]),
    ];
    for split in 0..=13 {
        let mut inflater = inflater(&TAKEOVER);
        for (section, bytes) in examples {
            let (head, tail) = bytes.split_at(split.min(bytes.len()));
            assert_eq!(inflate(&mut inflater, &[head, tail]).unwrap(), b"Hello", "{section} split at {split}");
        }
        assert_eq!(inflate(&mut inflater, &[&[0x00]]).unwrap(), b"", "7.2.3.6");
        assert_eq!(inflate(&mut inflater, &[]).unwrap(), b"");
        assert_eq!(inflate(&mut inflater, &[&HELLO[..3], &[], &HELLO[3..], &[]]).unwrap(), b"Hello");
    }
}

#[test]
fn a_message_may_hold_several_final_blocks() {
    let one = deflate_once(b"final ", FlushCompress::Finish);
    let all = [&one[..], &one, &one, &HELLO].concat();
    for forget in [false, true] {
        let mut inflater = inflater(&params(forget, 15));
        for _ in 0..3 {
            let pieces: Vec<&[u8]> = all.chunks(1).collect();
            assert_eq!(inflate(&mut inflater, &pieces).unwrap(), b"final final final Hello");
            assert_eq!(inflate(&mut inflater, &[&all]).unwrap(), b"final final final Hello");
            assert_eq!(inflate(&mut inflater, &[&one]).unwrap(), b"final ");
        }
    }
}

#[test]
fn an_empty_message_leaves_the_window_unchanged() {
    for pieces in [&[&b""[..]][..], &[b"", b"", b""]] {
        let mut deflater = Deflater::new(&TAKEOVER, Role::Client, 6);
        let mut inflater = inflater(&TAKEOVER);
        for message in [&[&b"Hello"[..]][..], pieces, &[b"Hel", b"lo"], pieces, pieces, &[b"", b"Hello", b""]] {
            let compressed = deflate(&mut deflater, message);
            assert_eq!(inflate(&mut inflater, &[&compressed]).unwrap(), message.concat());
        }
        assert_eq!(inflate(&mut inflater, &[b""]).unwrap(), b"", "no compressed bytes at all");
        let compressed = deflate(&mut deflater, &[b"Hello"]);
        assert_eq!(inflate(&mut inflater, &[&compressed]).unwrap(), b"Hello");
    }
}

#[test]
fn inflates_a_message_up_to_the_limit_and_no_larger() {
    let message = noise(100_000, 7);
    let compressed = deflate_once(&message, FlushCompress::Sync);
    for limit in [0, 1, 99_999, 100_000, 100_001] {
        let mut out = Buf::new();
        let result = inflater(&TAKEOVER).inflate(&compressed, true, limit, &mut out);
        if limit < message.len() {
            assert_eq!(result, Err(Error::MessageTooBig { limit }));
            assert_eq!(out.len(), limit + 1);
        } else {
            assert_eq!(result, Ok(()));
            assert_eq!(out.filled(), message);
        }
    }
    let mut inflater = inflater(&TAKEOVER);
    assert_eq!(inflater.inflate(&[0x00], true, 0, &mut Buf::new()), Ok(()));
}

#[test]
fn the_limit_counts_all_pieces_even_if_the_caller_takes_the_output() {
    let compressed = deflate_once(&[b'a'; 50_000], FlushCompress::Sync);
    let mut inflater = inflater(&TAKEOVER);
    let mut out = Buf::new();
    let mut result = Ok(());
    for byte in &compressed {
        result = result.and_then(|()| inflater.inflate(&[*byte], false, 40_000, &mut out));
        out.clear();
    }
    assert_eq!(result, Err(Error::MessageTooBig { limit: 40_000 }));
    assert_eq!(inflater.memory(), 0);
}

#[test]
fn a_deflate_bomb_fails_with_bounded_memory() {
    let bomb = deflate_once(&vec![0; 64 << 20], FlushCompress::Sync);
    assert!(bomb.len() < 70_000);
    let mut out = Buf::new();
    let limit = 1 << 20;
    let result = inflater(&TAKEOVER).inflate(&bomb, true, limit, &mut out);
    assert_eq!(result, Err(Error::MessageTooBig { limit }));
    assert!(out.len() <= limit + 1 && out.capacity() <= 2 * (limit + 1), "{out:?}");

    let mut out = Buf::new();
    let result = Inflater::new(&TAKEOVER, Role::Server, 1000).inflate(&bomb, true, ANY, &mut out);
    assert_eq!(result, Err(Error::InflateRatio { limit: 1000 }));
    assert!(out.capacity() <= 512 * 1024, "{out:?}");
    assert_eq!(result.unwrap_err().close_code(), crate::CloseCode::MESSAGE_TOO_BIG);
}

#[test]
fn small_messages_may_have_any_ratio() {
    let compressed = deflate_once(&vec![0; 64 * 1024], FlushCompress::Sync);
    assert_eq!(Inflater::new(&NO_TAKEOVER, Role::Client, 2).inflate(&compressed, true, ANY, &mut Buf::new()), Ok(()));
    let compressed = deflate_once(&noise(200_000, 3), FlushCompress::Sync);
    assert_eq!(Inflater::new(&NO_TAKEOVER, Role::Client, 2).inflate(&compressed, true, ANY, &mut Buf::new()), Ok(()));
}

#[test]
fn rejects_invalid_deflate_and_frees_the_memory() {
    let wrong: [&[u8]; 4] = [&[0x07], &[0xff; 9], b"\x00\x05\x00\x00\x00Hello", &[0x02, 0x01, 0x00, 0xff, 0xff, 0x62]];
    for bytes in wrong {
        let mut inflater = inflater(&TAKEOVER);
        assert_eq!(inflate(&mut inflater, &[bytes]), Err(Error::InvalidDeflate), "{bytes:x?}");
        assert_eq!(inflater.memory(), 0);
    }
    // A distance that points before the first message, and one into a message whose window is gone.
    let far = [0xf2, 0x00, 0x11, 0x00, 0x00];
    assert_eq!(inflate(&mut inflater(&TAKEOVER), &[&far]), Err(Error::InvalidDeflate));
    let mut forgetful = inflater(&NO_TAKEOVER);
    assert_eq!(inflate(&mut forgetful, &[&HELLO]).unwrap(), b"Hello");
    assert_eq!(inflate(&mut forgetful, &[&far]), Err(Error::InvalidDeflate));
}

#[test]
fn memory_is_allocated_late_and_freed_early() {
    let mut deflater = Deflater::new(&NO_TAKEOVER, Role::Server, 2);
    let mut inflater = Inflater::new(&NO_TAKEOVER, Role::Client, 1000);
    let mut out = Buf::new();
    assert_eq!((deflater.memory(), inflater.memory()), (0, 0));
    deflater.deflate(b"Hel", false, &mut out).unwrap();
    assert!(deflater.memory() > 16_000);
    deflater.release();
    deflater.deflate(b"lo", true, &mut out).unwrap();
    assert_eq!(deflater.memory(), 0);
    let compressed = out.filled().to_vec();
    inflater.inflate(&compressed[..3], false, ANY, &mut out).unwrap();
    assert!(inflater.memory() > 40_000);
    inflater.inflate(&compressed[3..], true, ANY, &mut out).unwrap();
    assert_eq!(inflater.memory(), 0);

    let mut deflater = Deflater::new(&TAKEOVER, Role::Server, 2);
    let mut inflater = Inflater::new(&TAKEOVER, Role::Client, 1000);
    for release in [false, false, true, false] {
        let compressed = deflate(&mut deflater, &[b"Hello"]);
        assert_eq!(inflate(&mut inflater, &[&compressed]).unwrap(), b"Hello");
        assert!((16_000..80_000).contains(&deflater.memory()) && inflater.memory() > 40_000);
        if release {
            deflater.release();
            assert_eq!(deflater.memory(), 0);
        }
    }
}

#[test]
fn server_and_client_parameters_apply_to_their_own_direction() {
    let only_server_forgets = DeflateParams { server_no_context_takeover: true, ..TAKEOVER };
    let mut server = Deflater::new(&only_server_forgets, Role::Server, 6);
    let mut client = Deflater::new(&only_server_forgets, Role::Client, 6);
    let (mut at_server, mut at_client) =
        (Inflater::new(&only_server_forgets, Role::Server, 9), Inflater::new(&only_server_forgets, Role::Client, 9));
    for _ in 0..2 {
        assert_eq!(inflate(&mut at_client, &[&deflate(&mut server, &[b"Hello"])]).unwrap(), b"Hello");
        assert_eq!(inflate(&mut at_server, &[&deflate(&mut client, &[b"Hello"])]).unwrap(), b"Hello");
    }
    assert_eq!((server.memory(), at_client.memory()), (0, 0));
    assert!(client.memory() > 0 && at_server.memory() > 0);
}

#[test]
fn distances_stay_within_the_negotiated_window() {
    let half = noise(1500, 5);
    let message = [&half[..], &half].concat();
    for (bits, level) in (8..=15).flat_map(|bits| [1, 2, 6].map(|level| (bits, level))) {
        let mut deflater = Deflater::new(&params(false, bits), Role::Server, level);
        assert_eq!(deflater.compresses(), bits > 8);
        let compressed = deflate(&mut deflater, &[&message]);
        // The repetition lies 1500 bytes back: only windows of at least 2048 bytes reach it.
        assert_eq!(compressed.len() < 2000, bits >= 11, "{bits} bits, {} bytes", compressed.len());
        assert_eq!(inflate_once(&compressed, bits.max(9), message.len()), message);
    }
    // With a window of 256 bytes the output must not refer back at all.
    let mut deflater = Deflater::new(&params(false, 8), Role::Server, 9);
    let compressed = deflate(&mut deflater, &[&[b'a'; 300]]);
    assert!(compressed.len() > 300 && compressed.windows(300).any(|window| window == [b'a'; 300]));
}

#[test]
fn incompressible_messages_grow_by_little() {
    let message = noise(200_000, 11);
    for level in 0..=9 {
        let compressed = deflate(&mut Deflater::new(&NO_TAKEOVER, Role::Client, level), &[&message]);
        let more = compressed.len().saturating_sub(message.len() + 16);
        assert!(more <= message.len() / if level == 1 { 18 } else { 1000 }, "level {level}: {more}");
    }
}

/// Messages that compress well, badly, or well only behind each other.
fn message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        ("[ab]{0,60}", 0..60_usize).prop_map(|(word, times)| word.repeat(times).into_bytes()),
        (0..5000_usize, any::<u64>()).prop_map(|(len, seed)| noise(len, seed | 1)),
        (1..40_000_usize).prop_map(|len| vec![b'x'; len]),
    ]
}

fn cuts(bytes: &[u8], at: &[usize]) -> Vec<usize> {
    let mut cuts: Vec<_> = at.iter().map(|at| at % (bytes.len() + 1)).collect();
    cuts.sort_unstable();
    cuts
}

fn pieces<'a>(bytes: &'a [u8], at: &[usize]) -> Vec<&'a [u8]> {
    let cuts = cuts(bytes, at);
    let starts = core::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain(core::iter::once(bytes.len()));
    starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn inflating_reverses_deflating_for_any_parameters(
        messages in proptest::collection::vec((message(), any::<bool>()), 1..6),
        at in proptest::collection::vec(any::<usize>(), 0..5),
        (forget, bits, level) in (any::<bool>(), 8..=15_u8, 0..=9_u32),
    ) {
        let params = params(forget, bits);
        let mut deflater = Deflater::new(&params, Role::Client, level);
        let mut inflater = inflater(&params);
        for (message, release) in &messages {
            let compressed = deflate(&mut deflater, &pieces(message, &at));
            if forget {
                prop_assert_eq!(&inflate_once(&compressed, bits.max(9), message.len()), message);
            }
            prop_assert_eq!(&inflate(&mut inflater, &pieces(&compressed, &at)).unwrap(), message);
            if *release {
                deflater.release();
            }
        }
    }

    #[test]
    fn arbitrary_bytes_inflate_the_same_however_they_are_cut(
        bytes in proptest::collection::vec(any::<u8>(), 0..80),
        prefix in 0..2_usize,
        at in proptest::collection::vec(any::<usize>(), 0..5),
    ) {
        // Garbage, half of the time behind a valid message.
        let bytes = [&HELLO[..7 * prefix], &bytes].concat();
        let whole = inflate(&mut inflater(&TAKEOVER), &[&bytes]);
        let cut = inflate(&mut inflater(&TAKEOVER), &pieces(&bytes, &at));
        prop_assert_eq!(whole, cut);
    }
}

#[test]
fn a_compressed_message_may_be_cut_anywhere() {
    let message: Vec<u8> =
        (0..600_u32).flat_map(|n| format!("{{\"n\":{},\"sq\":{}}}", n, n * n).into_bytes()).collect();
    for flush in [FlushCompress::Sync, FlushCompress::Finish] {
        let compressed = deflate_once(&message, flush);
        for at in 0..=compressed.len() {
            let (head, tail) = compressed.split_at(at);
            assert_eq!(inflate(&mut inflater(&TAKEOVER), &[head, tail]).unwrap(), message, "cut at {at}");
        }
    }
}
