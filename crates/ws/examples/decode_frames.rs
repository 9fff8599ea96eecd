//! Decodes N masked frames of 64 B in memory, for `cargo xtask icount`: `decode_frames N`.

use std::process::ExitCode;
use tautline_buf::{Buf, Pool};
use tautline_ws::{Decoder, Encoder, Event, Kind, Role};

fn main() -> ExitCode {
    let Some(count) = std::env::args().nth(1).and_then(|count| count.parse::<u32>().ok()) else {
        eprintln!("usage: decode_frames N");
        return ExitCode::from(2);
    };
    match decode(count) {
        Ok(bytes) => {
            println!("{count} frames, {bytes} bytes of payload");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Decodes one frame `count` times, and returns the bytes of payload.
fn decode(count: u32) -> Result<usize, tautline_ws::Error> {
    let mut pool = Pool::new(1 << 20);
    let (mut client, mut server) = (Encoder::new(Role::Client), Decoder::new(Role::Server, 1 << 20));
    let mut frame = Buf::new();
    client.message(Kind::Text, &[b'.'; 64], false, || [0x37, 0xfa, 0x21, 0x3d], &mut frame, &mut pool)?;
    let sent = frame.filled_mut().to_vec();
    let mut received = sent.clone();
    let mut bytes = 0;
    for _ in 0..count {
        // It is unmasked in place.
        received.copy_from_slice(&sent);
        if let Some(Event::Message(message)) = server.decode(&mut received, &mut pool)?.event {
            bytes += message.data().len();
        }
    }
    Ok(bytes)
}
