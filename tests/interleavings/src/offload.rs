//! The queue of handshakes between the loops and the pool's threads.

use crate::config::Offload;
use crate::everywhere;
use crate::job_queue::{JobQueue, Rejected};
use shuttle::sync::Arc;
use shuttle::sync::mpsc::{Sender, channel};
use shuttle::thread;

fn worker(queue: &Arc<JobQueue<u32>>, done: &Sender<u32>) -> thread::JoinHandle<()> {
    let (queue, done) = (queue.clone(), done.clone());
    thread::spawn(move || {
        while let Some((_, job)) = queue.take() {
            done.send(job).unwrap();
        }
    })
}

#[test]
fn each_job_is_done_once_or_comes_back() {
    everywhere(|| {
        let queue = Arc::new(JobQueue::new(&Offload::default()));
        let (done, results) = channel();
        let workers = [worker(&queue, &done), worker(&queue, &done)];
        let loops = [0, 10].map(|first| {
            let (queue, done) = (queue.clone(), done.clone());
            thread::spawn(move || {
                for job in first..first + 3 {
                    match queue.put(job) {
                        Ok(number) if job % 3 == 1 => {
                            // The client hangs up: the job comes back, or a thread has it.
                            if let Some(job) = queue.withdraw(number) {
                                done.send(job).unwrap();
                            }
                        }
                        Ok(_) => {}
                        // The loop does it itself.
                        Err((job, Rejected::Stalled | Rejected::Full)) => done.send(job).unwrap(),
                    }
                }
            })
        });
        loops.into_iter().for_each(|one| one.join().unwrap());
        queue.close();
        workers.into_iter().for_each(|one| one.join().unwrap());
        drop(done);
        let mut all: Vec<u32> = results.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 10, 11, 12]);
    });
}

#[test]
fn a_job_wakes_a_sleeping_thread() {
    everywhere(|| {
        let queue = Arc::new(JobQueue::new(&Offload::default()));
        let (done, results) = channel();
        let workers = [worker(&queue, &done), worker(&queue, &done)];
        for job in 0..2 {
            if queue.put(job).is_err() {
                done.send(job).unwrap();
            }
        }
        // A lost wake-up leaves all threads asleep here, which shuttle reports as a deadlock.
        assert_eq!(results.recv().unwrap() + results.recv().unwrap(), 1);
        queue.close();
        workers.into_iter().for_each(|one| one.join().unwrap());
    });
}

#[test]
fn closing_ends_every_thread() {
    everywhere(|| {
        let queue = Arc::new(JobQueue::<u32>::new(&Offload::default()));
        let sleeper = {
            let queue = queue.clone();
            thread::spawn(move || assert!(queue.take().is_none()))
        };
        let watcher = {
            let queue = queue.clone();
            thread::spawn(move || assert!(queue.take_stalled().is_none()))
        };
        queue.close();
        sleeper.join().unwrap();
        watcher.join().unwrap();
    });
}
