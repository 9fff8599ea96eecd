//! A wss server that sends every message back.
//!
//! ```text
//! cargo run -p tautline --example echo_server -- [ADDRESS [CERT.pem KEY.pem]]
//! ```
//! Without a certificate it makes one for localhost, and prints the file of its authority. Clients must trust that:
//! `taut connect --ca FILE wss://localhost:8443/`. The Enter key closes the connections cleanly and ends the server.

use std::error::Error;
use std::time::Duration;
use tautline::{Address, Certificate, CloseCode, Closed, Conn, Handler, Message, Opening, Outgoing};
use tautline::{Server, ServerHandle, Tls};
use tautline_dev_cert::{Authority, Leaf};

/// The handler: `start`'s closure makes one per loop. Its fields need no locks, since only its loop calls it.
struct Echo;

impl Handler for Echo {
    /// The state of a connection: here, the number of messages received.
    type State = u64;

    fn on_open(&mut self, conn: &mut Conn<'_, u64>, opening: &Opening<'_>) {
        println!("{} {}: open, {}", conn.id(), conn.peer(), opening.tls);
    }

    fn on_message(&mut self, conn: &mut Conn<'_, u64>, message: Message<'_>) {
        *conn.state() += 1;
        // The message is a slice of the receive buffer; it is framed and encrypted straight into the send buffer. The
        // result of `send` says whether it leaves now, waits for a slow reader, or was dropped.
        conn.send(Outgoing::from(&message));
    }

    fn on_close(&mut self, conn: &mut Conn<'_, u64>, closed: &Closed) {
        println!("{}: {} messages; {:#} ({})", conn.id(), conn.state(), closed.cause, closed.code);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let address = args.first().map_or("127.0.0.1:8443", String::as_str).parse()?;
    let certificate = match &args[args.len().min(1)..] {
        [] => development()?,
        [chain, key] => Certificate::new(std::fs::read(chain)?, std::fs::read(key)?),
        _ => return Err("usage: echo_server [ADDRESS [CERT.pem KEY.pem]]".into()),
    };

    let server = serve(certificate, address)?;
    println!("listening on wss://{}", server.addresses()[0]);

    if std::io::stdin().read_line(&mut String::new())? > 0 {
        server.drain(CloseCode::GOING_AWAY, "the server stops", Duration::from_secs(5));
    }
    Ok(server.join()?)
}

/// 0 shards stands for one loop per CPU. All loops listen at the address.
fn serve(certificate: Certificate, address: Address) -> Result<ServerHandle, tautline::Error> {
    Server::new(Tls::with_certificate(certificate)).listen(address).shards(0).start(|_shard| Echo)
}

/// Makes a certificate, issued by an authority of our own whose key is dropped at once.
fn development() -> Result<Certificate, Box<dyn Error>> {
    let authority = Authority::new("Tautline example")?;
    let file = std::env::temp_dir().join("tautline-example-ca.pem");
    std::fs::write(&file, authority.certificate())?;
    println!("clients trust this server by {}", file.display());
    Ok(authority.issue(&Leaf::new(&["localhost", "127.0.0.1", "::1"]))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::{ClientConfig, Config, Incoming, Roots, Socket, Target};

    #[test]
    fn sends_every_message_back() {
        let authority = Authority::new("test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["127.0.0.1"])).unwrap();
        let server = serve(certificate, "127.0.0.1:0".parse().unwrap()).unwrap();
        let target = Target::new(&format!("wss://{}/", server.addresses()[0])).unwrap();
        let tls = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
        let mut client = Socket::connect(target, tls, Config::default()).unwrap();
        client.text("hello").unwrap();
        client.binary(&[7; 100_000]).unwrap();
        assert_eq!(client.receive().unwrap(), Incoming::Text("hello".into()));
        assert_eq!(client.receive().unwrap(), Incoming::Binary(vec![7; 100_000]));
        client.close(CloseCode::NORMAL, "").unwrap();
        server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        server.join().unwrap();
    }
}
