//! Tickets: answers from other threads to requests whose clients may leave.

use crate::everywhere;
use crate::http::ticket::{Source, Ticket};
use crate::http::wanted::Wanted;
use crate::sync::{Bug, finds};
use crate::threads::command::Command;
use crate::threads::command_queue::{Capacity, CommandReceiver, command_queue};
use crate::threads::remote::{ShardHandle, ShardHandleError};
use http::StatusCode;
use shuttle::sync::Arc;
use shuttle::{check_random, thread};
use std::cell::OnceCell;
use tautline_io::Token;

const TOKEN: Token = Token { index: 7, generation: 3 };

/// A ticket, its connection's part, and the loop's commands.
fn ticket() -> (Ticket<()>, Wanted, CommandReceiver<Command>) {
    let (sender, commands) = command_queue(Capacity { commands: 1, bytes: 1 });
    let shard = ShardHandle(Arc::new(sender));
    let source = Source { shard: &shard, token: TOKEN, number: 5, has_room: true, wanted: OnceCell::new() };
    let ticket = source.ticket();
    let wanted = source.wanted.into_inner().unwrap();
    (ticket, wanted, commands)
}

fn answers(commands: &CommandReceiver<Command>) -> usize {
    let answers = std::iter::from_fn(|| commands.next());
    answers
        .map(|Command::Reply { to, number, .. }| assert!((to, number) == (TOKEN, 5), "the answer is for its request"))
        .count()
}

fn leaving() {
    let (ticket, wanted, commands) = ticket();
    let application = thread::spawn(move || ticket.status(StatusCode::OK));
    drop(wanted);
    match application.join().unwrap() {
        Ok(()) => assert_eq!(answers(&commands), 1),
        Err(error) => assert_eq!((error, answers(&commands)), (ShardHandleError::Ended, 0)),
    }
}

fn waiting() {
    let (ticket, wanted, commands) = ticket();
    // The end of a ticket that nobody used is an answer too.
    let application = thread::spawn(move || drop(ticket));
    application.join().unwrap();
    assert_eq!(answers(&commands), 1);
    drop(wanted);
}

fn late() {
    let (ticket, wanted, commands) = ticket();
    drop(wanted);
    let application = thread::spawn(move || (ticket.is_wanted(), ticket.status(StatusCode::OK)));
    assert_eq!(application.join().unwrap(), (false, Err(ShardHandleError::Ended)));
    assert_eq!(answers(&commands), 0);
}

fn stopping() {
    let (ticket, _wanted, commands) = ticket();
    let application = thread::spawn(move || ticket.status(StatusCode::OK));
    drop(commands);
    let answered = application.join().unwrap();
    assert!(matches!(answered, Ok(()) | Err(ShardHandleError::Stopped)), "{answered:?}");
}

#[test]
fn a_request_gets_one_answer_unless_its_client_has_left() {
    everywhere(leaving);
    // One thread after the other.
    check_random(waiting, 100);
    check_random(late, 100);
    assert!(finds(Bug::LostStore, || check_random(late, 100)));
}

#[test]
fn a_loop_may_stop_while_it_is_answered() {
    everywhere(stopping);
}
