//! One whole wss connection without I/O: a client and a server on two threads, each with a loop of its own.
//!
//! ```text
//! cargo run -p tautline --example connection
//! ```
//! This is how to use [`Connection`] in a runtime of your own. The loop below is all that a runtime needs: write what
//! is to be written, take events, read, and call `on_time` when a deadline passes. Here it waits in a read with a
//! timeout. A runtime with a poller waits there instead.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::engine::connection::{Connection, Context, Event};
use tautline::layers::tls::{Engine as _, Session};
use tautline::layers::tls_rustls::fused;
use tautline::{ClientConfig, CloseCode, Config, Outgoing, Roots, ServerConfig, Target};
use tautline_dev_cert::{Authority, Leaf};

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let authority = Authority::new("Example")?;
    let certificate = authority.issue(&Leaf::new(&["localhost"]))?;
    let server = fused::Engine::server(&ServerConfig::new([certificate]))?;
    let roots = Roots::Pem(authority.certificate().into());
    let client = fused::Engine::client(&ClientConfig::default().with_roots(roots))?;

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = Target::new(&format!("wss://localhost:{}/", listener.local_addr()?.port()))?;
    let serving = std::thread::spawn(move || {
        let (stream, _) = listener.accept()?;
        let config = Arc::new(Config::default());
        let connection = Connection::server(server.accept()?, config, Instant::now());
        run(connection, stream, Context::new()?, |connection, event, context| match event {
            Event::Request => connection.upgrade(Default::default(), context, Instant::now()).map_err(Into::into),
            Event::Message(_) => {
                // The message is borrowed while its answer is taken: no copy but the one into the output.
                let (payload, output) = connection.payload_and_output();
                println!("server: {:?}", payload.text());
                Ok(output.send((&payload).into(), context)?)
            }
            _ => Ok(()),
        })
    });

    let mut context = Context::new()?;
    let stream = TcpStream::connect(("127.0.0.1", target.port()))?;
    let (session, config) = (client.connect(target.host())?, Arc::new(Config::default()));
    let connection = Connection::client(session, Arc::new(target), config, &mut context, Instant::now())?;
    run(connection, stream, context, |connection, event, context| {
        match event {
            Event::Open(opened) => {
                println!("client: open, {}", opened.tls);
                // Both leave in one record.
                connection.send(Outgoing::text("hello"), context)?;
                connection.send(Outgoing::text("that was all"), context)?;
            }
            Event::Message(_) if connection.payload().text() == Some("that was all") => {
                connection.close(CloseCode::NORMAL, "bye", context, Instant::now());
            }
            Event::Message(_) => println!("client: {:?}", connection.payload().text()),
            Event::Closed(closed) => println!("client: {}", closed.cause),
            other => println!("client: {other:?}"),
        }
        Ok(())
    })?;
    serving.join().map_err(|_| "the server panicked")?
}

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs a connection over a blocking stream until it ends.
fn run<S: Session>(
    mut connection: Connection<S>,
    mut stream: TcpStream,
    mut context: Context,
    mut on_event: impl FnMut(&mut Connection<S>, Event, &mut Context) -> Outcome,
) -> Outcome {
    loop {
        while let Some(event) = connection.next(&mut context) {
            on_event(&mut connection, event, &mut context)?;
        }
        while connection.has_output() {
            let written = stream.write(connection.output(&mut context))?;
            connection.written(written, &mut context);
        }
        if connection.is_over() {
            // It fails if the peer has ended the TCP connection already.
            let _ = stream.shutdown(std::net::Shutdown::Write);
            return Ok(());
        }
        let wait = connection.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        // A timeout of zero would mean none.
        stream.set_read_timeout(wait.map(|wait| wait.max(Duration::from_millis(1))))?;
        match stream.read(connection.window(&mut context)) {
            Ok(0) => connection.ended(),
            Ok(read) => connection.filled(read, Instant::now()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                connection.on_time(Instant::now(), &mut context);
            }
            Err(error) => connection.broken(error, &mut context),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs() {
        super::main().unwrap();
    }
}
