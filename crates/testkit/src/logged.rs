use std::cell::RefCell;

/// Collects the warnings and errors that this thread logs while `action` runs.
pub fn warnings(action: impl FnOnce()) -> Vec<String> {
    thread_local!(static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });
    struct Collector;
    impl log::Log for Collector {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() <= log::Level::Warn
        }
        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
            }
        }
        fn flush(&self) {}
    }
    // Another call in this process may have set the logger already.
    let _ = log::set_logger(&Collector);
    log::set_max_level(log::LevelFilter::Warn);
    LINES.take();
    action();
    LINES.take()
}
