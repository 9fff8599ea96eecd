//! A server's process as the keeper has started it.

use super::link::{Answer, Link, Request};
use rustix::thread::set_name;
use signal_hook::consts::SIGQUIT;
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Names a variable that tells a process that its standard input is the socket to the keeper.
pub(super) const VARIABLE: &str = "TAUT_KEEPER";

/// The time within which a keeper answers. It does little else.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to the keeper. Clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    link: Arc<Link>,
    answers: Arc<Mutex<Answers>>,
    /// The way to `answers`, until a thread listens.
    tell: Arc<Mutex<Option<Sender<Answer>>>>,
}

/// The keeper's answers, in their order.
#[derive(Debug)]
struct Answers {
    come: Receiver<Answer>,
    /// The number of the last request for a successor.
    asked: u32,
}

impl Answers {
    /// The next answer that `pick` takes, if it comes within this time. All others are dropped: they belong to a successor that
    /// this process has given up.
    fn wait_for<T>(&self, within: Duration, mut pick: impl FnMut(Answer) -> Option<T>) -> Result<T, RecvTimeoutError> {
        let end = Instant::now() + within;
        loop {
            let answer = self.come.recv_timeout(end.saturating_duration_since(Instant::now()))?;
            if let Some(picked) = pick(answer) {
                return Ok(picked);
            }
        }
    }
}

/// The sockets with which a worker begins.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// Sockets to listen at.
    pub(crate) listening: Vec<OwnedFd>,
    /// The socket to the predecessor.
    pub(crate) predecessor: Option<UnixStream>,
}

impl Worker {
    /// Whether a keeper has started this process.
    pub(crate) fn is_one() -> bool {
        env::var_os(VARIABLE).is_some()
    }

    /// Greets the keeper, if one has started this process. To be called on the first thread, and once. It starts no thread.
    pub(crate) fn begin() -> io::Result<Option<(Self, Sockets)>> {
        if !Self::is_one() {
            return Ok(None);
        }
        // Lists of processes show it. Without it nothing is lost.
        let _ = set_name(c"taut-worker");
        Self::greet(Link(take_stdin()?)).map(Some)
    }

    fn greet(link: Link) -> io::Result<(Self, Sockets)> {
        let mut sockets = Sockets::default();
        loop {
            match link.next_answer()? {
                Answer::Socket(socket) => sockets.listening.push(socket),
                Answer::TakeOver(stream) => sockets.predecessor = Some(stream.into()),
                Answer::Begin => break,
                Answer::Started(..) | Answer::NotStarted(..) | Answer::Ended(..) => {}
            }
        }
        let (tell, come) = channel();
        let answers = Arc::new(Mutex::new(Answers { come, asked: 0 }));
        let tell = Arc::new(Mutex::new(Some(tell)));
        Ok((Self { link: Arc::new(link), answers, tell }, sockets))
    }

    /// Begins to listen to the keeper, on a thread of its own. A second call does nothing.
    ///
    /// The access to files has to be confined before: only threads that start later inherit that.
    pub(crate) fn listen(&self) -> io::Result<()> {
        let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(tell) = tell else { return Ok(()) };
        let link = self.link.clone();
        thread::Builder::new().name("keeper".to_owned()).spawn(move || hear(&link, &tell))?;
        Ok(())
    }

    /// Has the keeper start a successor, and returns its number.
    pub(crate) fn start_successor(&self, stream: UnixStream) -> io::Result<u32> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.asked = answers.asked.wrapping_add(1);
        let asked = answers.asked;
        self.link.ask(&Request::Successor(asked, stream.into()))?;
        let started = answers.wait_for(PATIENCE, |answer| match answer {
            Answer::Started(number, process) if number == asked => Some(Ok(process)),
            Answer::NotStarted(number, why) if number == asked => Some(Err(io::Error::other(why))),
            _ => None,
        });
        started.unwrap_or_else(|error| {
            Err(io::Error::other(match error {
                RecvTimeoutError::Timeout => "the keeper does not answer",
                RecvTimeoutError::Disconnected => "the keeper has ended",
            }))
        })
    }

    /// How this successor, the last one, has ended, if it does within this time.
    pub(crate) fn end_of_successor(&self, successor: u32, within: Duration) -> Option<String> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = answers.wait_for(within, |answer| match answer {
            Answer::Ended(process, how) if process == successor => Some(how),
            _ => None,
        });
        ended.ok()
    }

    /// Tells the keeper something that needs no answer.
    pub(crate) fn ask(&self, request: &Request) {
        if let Err(error) = self.link.ask(request) {
            log::warn!("cannot tell the keeper {request:?}: {error}");
        }
    }
}

/// Passes the keeper's words on until it ends. The server then stops: nobody would pass signals on to it.
fn hear(link: &Link, tell: &Sender<Answer>) {
    while let Ok(answer) = link.next_answer() {
        if tell.send(answer).is_err() {
            return;
        }
    }
    log::error!("the keeper has ended, so the server stops");
    let _ = signal_hook::low_level::raise(SIGQUIT);
}

/// The socket at standard input, whose place an empty file takes: the socket must close with its owner.
pub(crate) fn take_stdin() -> io::Result<OwnedFd> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::super::link::{Answer, Link};
    use super::Worker;
    use std::fs::{read_dir, read_to_string};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    fn is_heard() -> bool {
        let threads = read_dir("/proc/self/task").unwrap();
        let names = threads.filter_map(|thread| read_to_string(thread.unwrap().path().join("comm")).ok());
        names.into_iter().any(|name| name.trim() == "keeper")
    }

    fn eventually(is_so: bool) {
        let start = Instant::now();
        while is_heard() != is_so {
            assert!(start.elapsed() < Duration::from_mins(1), "the thread is there: {}", !is_so);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A worker that listens, and its keeper.
    fn listening() -> (Worker, Link) {
        let (keeper, link) = Link::pair().unwrap();
        keeper.answer(&Answer::Begin).unwrap();
        let (worker, _) = Worker::greet(link).unwrap();
        // As `listen`, whose threads another test counts.
        let (tell, link) = (worker.tell.lock().unwrap().take().unwrap(), worker.link.clone());
        std::thread::spawn(move || while link.next_answer().is_ok_and(|answer| tell.send(answer).is_ok()) {});
        (worker, keeper)
    }

    #[test]
    fn late_answers_belong_to_the_successor_that_they_name() {
        let (worker, keeper) = listening();
        let how = |how: &str| how.to_owned();
        let start = || worker.start_successor(UnixStream::pair().unwrap().0);
        for answer in [Answer::Started(1, 70), Answer::Ended(69, how("before"))] {
            keeper.answer(&answer).unwrap();
        }
        assert_eq!(start().unwrap(), 70);
        // The first one was given up. Its end, and an answer to a request that waited too long, come while the second starts.
        for answer in [Answer::Ended(70, how("first")), Answer::NotStarted(1, how("late")), Answer::Started(2, 71)] {
            keeper.answer(&answer).unwrap();
        }
        assert_eq!(start().unwrap(), 71);
        for answer in [Answer::Ended(70, how("again")), Answer::Ended(71, how("second"))] {
            keeper.answer(&answer).unwrap();
        }
        assert_eq!(worker.end_of_successor(71, Duration::from_mins(1)).as_deref(), Some("second"));
        keeper.answer(&Answer::NotStarted(3, how("stopping"))).unwrap();
        assert_eq!(start().unwrap_err().to_string(), "stopping");
        keeper.answer(&Answer::Ended(71, how("late"))).unwrap();
        assert_eq!(worker.end_of_successor(72, Duration::from_millis(1)), None);
    }

    #[test]
    fn no_thread_starts_before_the_worker_listens() {
        let (keeper, link) = Link::pair().unwrap();
        keeper.answer(&Answer::Begin).unwrap();
        let (worker, sockets) = Worker::greet(link).unwrap();
        assert!(sockets.listening.is_empty() && !is_heard());
        worker.listen().unwrap();
        worker.listen().unwrap();
        eventually(true);
        // Nobody waits for this answer, so the thread ends.
        drop(worker);
        keeper.answer(&Answer::Begin).unwrap();
        eventually(false);
    }
}
