//! The queue of commands from other threads to a shard.

use crate::everywhere;
use crate::sync::{Bug, finds};
use crate::threads::command_queue::{Capacity, CommandReceiver, CommandSender, Rejected, Weigh, command_queue};
use shuttle::sync::mpsc::{Sender, channel};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread;

const CAPACITY: Capacity = Capacity { commands: 2, bytes: 100 };

impl Weigh for u32 {
    fn bytes(&self) -> usize {
        30
    }
}

/// A driver that sleeps until it is woken.
#[derive(Default)]
struct Driver {
    woken: Mutex<bool>,
    news: Condvar,
}

impl Driver {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.news.notify_one();
    }

    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.news.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// Runs a loop until it has taken this many commands.
fn take(driver: &Driver, commands: &CommandReceiver<u32>, wanted: usize) -> Vec<u32> {
    let mut taken = Vec::new();
    while taken.len() < wanted {
        // A lost wake-up leaves the loop asleep here, which shuttle reports as a deadlock.
        driver.wait();
        commands.woken();
        while let Some(command) = commands.next() {
            taken.push(command);
        }
    }
    taken
}

fn wake_ups() {
    let (sender, commands) = command_queue(Capacity { commands: 10, bytes: 1_000 });
    let (sender, driver) = (Arc::new(sender), Arc::new(Driver::default()));
    let threads = [0, 10].map(|first| {
        let (sender, driver) = (sender.clone(), driver.clone());
        thread::spawn(move || {
            for command in first..first + 2 {
                if sender.send(command).unwrap() {
                    driver.wake();
                }
            }
        })
    });
    let taken = take(&driver, &commands, 4);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let of = |first| taken.iter().copied().filter(move |command| (first..first + 10).contains(command));
    assert!(of(0).eq([0, 1]) && of(10).eq([10, 11]), "in the order of each sender: {taken:?}");
    assert_eq!(sender.waiting(), 0);
}

fn bounds() {
    let (sender, commands) = command_queue(CAPACITY);
    let sender = Arc::new(sender);
    let threads = [0, 10, 20].map(|command| {
        let sender = sender.clone();
        thread::spawn(move || match sender.send(command) {
            Ok(_) => 1,
            Err(Rejected::Full) => 0,
            Err(other) => panic!("{other:?}"),
        })
    });
    let sent: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(sent <= CAPACITY.commands && sender.waiting() == sent, "{sent} of {}", sender.waiting());
    let taken = std::iter::from_fn(|| commands.next()).count();
    assert_eq!((taken, sender.waiting()), (sent, 0));
    // The account of bytes is even again, too: two more fit.
    assert!(sender.send(1).is_ok() && sender.send(2).is_ok());
}

/// A command that waits for an answer, like `ShardHandle::subscribers`.
struct Question(#[expect(dead_code, reason = "its end is the answer")] Sender<()>);

impl Weigh for Question {
    fn bytes(&self) -> usize {
        0
    }
}

fn stopping() {
    let (sender, commands): (CommandSender<Question>, _) = command_queue(CAPACITY);
    let sender = Arc::new(sender);
    let threads = [(); 2].map(|()| {
        let sender = sender.clone();
        thread::spawn(move || {
            let (reply, answer) = channel();
            // A question that a stopped shard keeps would wait for ever here.
            match sender.send(Question(reply)) {
                Ok(_) => assert!(answer.recv().is_err()),
                Err(rejected) => assert_eq!(rejected, Rejected::Stopped),
            }
        })
    });
    drop(commands);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(!sender.is_open());
    for _ in 0..=CAPACITY.commands {
        assert_eq!(sender.send(Question(channel().0)), Err(Rejected::Stopped));
    }
}

#[test]
fn commands_arrive_in_order_and_wake_the_loop() {
    everywhere(wake_ups);
    assert!(finds(Bug::Torn, || everywhere(wake_ups)));
}

#[test]
fn no_more_commands_wait_than_the_queue_may_have() {
    everywhere(bounds);
    assert!(finds(Bug::Torn, || everywhere(bounds)));
}

#[test]
fn a_stopped_loop_answers_no_question_and_keeps_none() {
    everywhere(stopping);
    assert!(finds(Bug::LostStore, || everywhere(stopping)));
}
