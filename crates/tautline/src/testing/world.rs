use super::net::{Net, Pipe};
use std::cell::RefCell;
use std::rc::Rc;

/// Turns without an end, after which a test fails.
const MOST_TURNS: usize = 100_000;

/// A loop without the type of its handler, and everything around it.
#[derive(Clone)]
pub(super) struct World {
    pub(super) net: Rc<RefCell<Net>>,
    pub(super) turn: Rc<RefCell<dyn Turn>>,
}

/// A loop, without its types.
pub(super) trait Turn {
    fn turn(&mut self);
}

impl World {
    /// Runs the loop and its clients until nothing is left to do now.
    pub(super) fn run(&self) {
        for _ in 0..MOST_TURNS {
            self.net.borrow_mut().run_clients();
            self.turn.borrow_mut().turn();
            let mut net = self.net.borrow_mut();
            net.run_clients();
            let is_due = net.due.is_some_and(|due| due <= net.now);
            if !is_due && !net.is_woken() && !net.pipes.iter().any(Pipe::is_ready) {
                return;
            }
        }
        #[expect(clippy::panic, reason = "it ends the test, whose handler is at fault")]
        {
            panic!("the handler keeps its loop busy without an end: time stands still until `advance`");
        }
    }
}
