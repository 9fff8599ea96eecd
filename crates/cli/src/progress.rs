use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar on a terminal, nothing in a pipe.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar on standard error, so that results can be piped. `indicatif` hides it if that is no terminal.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3} %  {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows that `share` (0 to 1) is done, and that `what` is under way.
    pub(crate) fn show(&self, share: f64, what: &str) {
        #[expect(clippy::cast_possible_truncation, reason = "clamped to what the bar counts")]
        self.0.set_position((share.clamp(0.0, 1.0) * 1000.0) as u64);
        if self.0.message() != what {
            self.0.set_message(what.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
