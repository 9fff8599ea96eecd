/// Progress of a run, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// Number of open connections, and of wanted ones.
    Connecting(usize, usize),
    /// Share of the time that has passed, warm-up included.
    Running(f64),
}

/// Receives the progress of a run several times a second.
pub type Watch<'a> = &'a mut dyn FnMut(Progress);
