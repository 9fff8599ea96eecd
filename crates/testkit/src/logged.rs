use log::Level;
use std::cell::{Cell, RefCell};

/// Collects the warnings and errors that this thread logs while `action` runs.
pub fn warnings(action: impl FnOnce()) -> Vec<String> {
    log_lines(Level::Warn, action)
}

/// Collects the lines of this level and above that this thread logs while `action` runs.
pub fn log_lines(level: Level, action: impl FnOnce()) -> Vec<String> {
    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        static LEVEL: Cell<Level> = const { Cell::new(Level::Error) };
    }
    struct Collector;
    impl log::Log for Collector {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() <= LEVEL.get()
        }
        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
            }
        }
        fn flush(&self) {}
    }
    // Another call in this process may have set the logger already. Each thread has its own level.
    let _ = log::set_logger(&Collector);
    log::set_max_level(log::LevelFilter::Info);
    LINES.take();
    LEVEL.set(level);
    action();
    LEVEL.set(Level::Error);
    LINES.take()
}
