//! A server whose loops are Tautline's and whose connections are tasks on tokio, with logins that take a while.
//!
//! ```text
//! cargo run -p tautline-tokio --example tokio_tasks -- [ADDRESS]
//! ```
//! A client gives its name as the query of its request, such as `/?ada`. A task looks the name up, and the loop serves
//! others meanwhile.

use http::StatusCode;
use std::time::Duration;
use tautline::{Address, Reply, Request, Server, ServerHandle, Ticket, Upgrade};
use tautline_tokio::tasks::{Task, TaskSocket, Tasks};

/// A user as the database knows them.
#[derive(Clone, Default)]
struct User(String);

/// Greets a client, and echoes.
async fn serve(mut socket: TaskSocket) {
    let User(name) = socket.request().extensions().get().cloned().unwrap_or_default();
    if socket.send(format!("welcome, {name}")).await.is_err() {
        return;
    }
    while let Some(message) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Asks the database, which takes 50 ms.
fn route(request: &Request<'_>, runtime: &tokio::runtime::Handle) -> Reply<Task> {
    let user = request.http.uri().query().unwrap_or_default().to_owned();
    request.later(|ticket: Ticket<Task>| {
        runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            // A client that has left needs no answer.
            let _left = match user.as_str() {
                "" => ticket.status(StatusCode::UNAUTHORIZED),
                _ => ticket.upgrade(Upgrade::new().with_state(Task::default().with(User(user)))),
            };
        });
    })
}

fn start(address: Address) -> Result<ServerHandle, tautline::Error> {
    let runtime = tokio::runtime::Handle::current();
    let tasks = Tasks::new(serve).with_route(move |request| route(request, &runtime));
    Server::plain().listen(address).shards(0).start(move |_shard| tasks.clone())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = start(std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into()).parse()?)?;
    println!("listening on ws://{}/?NAME", server.addresses()[0]);
    Ok(tokio::task::spawn_blocking(|| server.join()).await??)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tautline::CloseCode;

    #[tokio::test]
    async fn clients_are_greeted_and_echoed() {
        let server = start("127.0.0.1:0".parse().unwrap()).unwrap();
        let uri = format!("ws://{}/?ada", server.addresses()[0]);
        let mut client = tautline_tokio::connect(&uri).await.unwrap();
        assert_eq!(client.recv().await.unwrap().unwrap().text(), Some("welcome, ada"));
        client.text("hello").await.unwrap();
        assert_eq!(client.recv().await.unwrap().unwrap().text(), Some("hello"));
        server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
        assert!(client.recv().await.unwrap().is_none());
        tokio::task::spawn_blocking(|| server.join()).await.unwrap().unwrap();
    }
}
