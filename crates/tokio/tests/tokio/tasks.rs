//! Connections as tasks: order, backpressure both ways, ends, dropped futures.

use futures_util::FutureExt as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tautline::{CloseCode, Server, ServerHandle};
use tautline_tokio::tasks::{Ended, TaskSocket, Tasks};
use tokio::sync::Notify;

fn start<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TaskSocket) -> F + Send + Sync + 'static,
) -> (ServerHandle, String) {
    let tasks = Tasks::new(serve);
    let server = Server::plain().listen("127.0.0.1:0".parse().unwrap()).start(move |_| tasks.clone()).unwrap();
    let uri = format!("ws://{}/", server.addresses()[0]);
    (server, uri)
}

async fn stop(server: ServerHandle) {
    server.drain(CloseCode::GOING_AWAY, "", Duration::from_secs(5));
    tokio::task::spawn_blocking(|| server.join()).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_once_and_in_order_although_futures_are_dropped() {
    let (server, uri) = start(|mut socket: TaskSocket| async move {
        let mut waiting = None;
        loop {
            // Each future is polled once, and dropped if it is not ready.
            if waiting.is_none() {
                match socket.recv().now_or_never() {
                    Some(None) => return,
                    Some(message) => waiting = message,
                    None => tokio::task::yield_now().await,
                }
            }
            if let Some(message) = &waiting {
                match socket.send(message.clone()).now_or_never() {
                    Some(Ok(())) => waiting = None,
                    Some(Err(_)) => return,
                    None => tokio::task::yield_now().await,
                }
            }
        }
    });
    let mut client = tautline_tokio::connect(&uri).await.unwrap();
    for round in 0..50_u32 {
        for number in 0..200_u32 {
            client.send(&tautline_tokio::Message::from((round * 200 + number).to_be_bytes().to_vec())).await.unwrap();
        }
        for number in 0..200_u32 {
            let message = client.recv().await.unwrap().unwrap();
            assert_eq!(message.data(), (round * 200 + number).to_be_bytes());
        }
    }
    drop(client);
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_closes_behind_its_messages_and_learns_how_its_connection_ended() {
    let (ends, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let (server, uri) = start(move |mut socket: TaskSocket| {
        let ends = ends.clone();
        async move {
            if socket.request().uri().path() == "/stays" {
                // The client may have closed the connection before this task first runs.
                while socket.recv().await.is_some() {}
                ends.send(socket.closed().unwrap().code).unwrap();
                assert_eq!(socket.send("late").await, Err(Ended));
            } else {
                assert!(socket.closed().is_none());
                // More than the queue and the kernel take.
                for _ in 0..200 {
                    socket.send(vec![7; 100_000]).await.unwrap();
                }
                socket.close(CloseCode::new(4001), "enough").await.unwrap();
            }
        }
    });
    let mut client = tautline_tokio::connect(&format!("{uri}leaves")).await.unwrap();
    for _ in 0..200 {
        assert_eq!(client.recv().await.unwrap().unwrap().data().len(), 100_000);
    }
    assert!(client.recv().await.unwrap().is_none());
    let closed = client.closed().unwrap();
    assert_eq!((closed.code.get(), &closed.reason[..]), (4001, "enough"));
    let mut client = tautline_tokio::connect(&format!("{uri}stays")).await.unwrap();
    client.close(CloseCode::GOING_AWAY, "").await.unwrap();
    assert_eq!(ended.recv().await.unwrap(), CloseCode::GOING_AWAY);
    stop(server).await;
}

/// A task that does not receive stops its client: the queue is bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_lags_stops_the_reading() {
    let go = Arc::new(Notify::new());
    let received = Arc::new(AtomicUsize::new(0));
    let (server, uri) = {
        let (go, received) = (go.clone(), received.clone());
        start(move |mut socket: TaskSocket| {
            let (go, received) = (go.clone(), received.clone());
            async move {
                go.notified().await;
                while socket.recv().await.is_some() {
                    received.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    };
    let mut client = tautline_tokio::connect(&uri).await.unwrap();
    let message = vec![7_u8; 64 << 10];
    let mut sent = 0;
    // Sending comes to a halt once the kernel's buffers are full.
    while sent < 2000 {
        match tokio::time::timeout(Duration::from_secs(3), client.send(tautline_tokio::Outgoing::binary(&message)))
            .await
        {
            Ok(result) => result.unwrap(),
            Err(_) => break,
        }
        sent += 1;
    }
    assert!((4..2000).contains(&sent), "{sent}");
    let counters = server.shards()[0].counters();
    assert!(counters.messages_in < 40, "{} messages of 64 KiB wait in the queue", counters.messages_in);
    go.notify_one();
    client.close(CloseCode::NORMAL, "").await.unwrap();
    while received.load(Ordering::SeqCst) < sent {
        tokio::task::yield_now().await;
    }
    stop(server).await;
}

/// A client that does not read stops the task's `send`, and gets everything when it reads again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_lags_stops_the_task() {
    let sent = Arc::new(AtomicUsize::new(0));
    let (server, uri) = {
        let sent = sent.clone();
        start(move |socket: TaskSocket| {
            let sent = sent.clone();
            async move {
                for number in 0..400_u32 {
                    let mut message = vec![0_u8; 100_000];
                    message[..4].copy_from_slice(&number.to_be_bytes());
                    socket.send(message).await.unwrap();
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    };
    let mut client = tautline_tokio::connect(&uri).await.unwrap();
    let mut before = usize::MAX;
    while before != sent.load(Ordering::SeqCst) {
        before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(before < 400, "the task does not wait");
    for number in 0..400_u32 {
        let message = client.recv().await.unwrap().unwrap();
        assert_eq!((message.data().len(), &message.data()[..4]), (100_000, &number.to_be_bytes()[..]));
    }
    // The end of the task closes the connection, behind its messages.
    assert!(client.recv().await.unwrap().is_none());
    assert_eq!(server.shards()[0].counters().messages_dropped, 0);
    stop(server).await;
}
