//! The protocol alone: a client and a server, with two buffers for a wire. No sockets, no clock, no threads.
//!
//! ```text
//! cargo run -p tautline --example sans_io
//! ```
//! This is how to use `tautline-ws` in a runtime of your own. Pass received bytes in, and take bytes to send from a
//! [`Buf`]. When a call returns `None`, read more.

use tautline_buf::{Buf, Pool};
use tautline_ws::handshake::{HeadLimits, HeadReader, Opening, Options, Policy, accept};
use tautline_ws::{CloseCode, Decoded, Decoder, Encoder, Event, Kind, Role};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut to_server, mut to_client) = (Buf::new(), Buf::new());

    // The opening handshake. The caller passes the nonce and, below, the mask keys. In production they must come from a
    // cryptographic generator.
    let mut options = Options::default();
    options.subprotocols = vec!["greeting".into()];
    let mut opening = Opening::new(&"ws://example.org/hello".parse()?, *b"16 random bytes!", &options)?;
    opening.write(&mut to_server);

    let mut policy = Policy::default();
    policy.subprotocols = vec!["greeting".into()];
    let mut reader = HeadReader::new(HeadLimits::default());
    let (request, used) = reader.request(to_server.filled())?.ok_or("the head is not whole yet: read more")?;
    to_server.take(used);
    println!("server: {} {}", request.method(), request.uri());
    // The error of `accept` holds the response to send; see `write_response`.
    accept(&request, &policy)?.write(&mut to_client);

    let (established, used) = opening.read(to_client.filled())?.ok_or("the head is not whole yet: read more")?;
    to_client.take(used);
    println!("client: {}, {:?}", established.response.status(), established.negotiated);

    // Frames. Each side has an encoder and a decoder, which limits the size of messages.
    let mut pool = Pool::new(1 << 20);
    let mut encoder = Encoder::new(Role::Client);
    let key = || [0x37, 0xfa, 0x21, 0x3d];
    encoder.message(Kind::Text, b"Hello", false, key, &mut to_server, &mut pool)?;
    encoder.ping(b"still there?", key, &mut to_server)?;
    encoder.close(Some((CloseCode::NORMAL, "that was all")), key, &mut to_server)?;

    let (mut decoder, mut replies) = (Decoder::new(Role::Server, 64 << 10), Encoder::new(Role::Server));
    // Sockets cut the stream anywhere: here after every third byte. A decoder uses all of its input, so the caller
    // carries no bytes over.
    for piece in to_server.filled_mut().chunks_mut(3) {
        let mut piece = piece;
        while !piece.is_empty() {
            let Decoded { used, event } = decoder.decode(piece, &mut pool)?;
            match event {
                Some(Event::Message(message)) => {
                    println!("server: {message:?}");
                    replies.message(message.kind(), message.data(), false, key, &mut to_client, &mut pool)?;
                }
                Some(Event::Ping(payload)) => replies.pong(payload, key, &mut to_client)?,
                Some(Event::Close(close)) => {
                    println!("server: {close:?}");
                    replies.close(close.map(|close| (close.code, "")), key, &mut to_client)?;
                }
                Some(other) => println!("server: {other:?}"),
                None => {}
            }
            // The event is handled: its buffer goes back to the pool.
            decoder.recycle(&mut pool);
            piece = &mut piece[used..];
        }
    }

    let (mut decoder, mut rest) = (Decoder::new(Role::Client, 64 << 10), to_client.filled_mut());
    while !rest.is_empty() {
        let Decoded { used, event } = decoder.decode(rest, &mut pool)?;
        println!("client: {event:?}");
        rest = &mut rest[used..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs() {
        super::main().unwrap();
    }
}
