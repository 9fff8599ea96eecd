use std::cell::RefCell;

/// What is logged on this thread while `action` runs, warnings and worse.
pub fn warnings(action: impl FnOnce()) -> Vec<String> {
    thread_local!(static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) });
    struct Collector;
    impl log::Log for Collector {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            metadata.level() <= log::Level::Warn
        }
        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                SAID.with_borrow_mut(|said| said.push(record.args().to_string()));
            }
        }
        fn flush(&self) {}
    }
    // Other tests of this process may have set it.
    let _ = log::set_logger(&Collector);
    log::set_max_level(log::LevelFilter::Warn);
    SAID.take();
    action();
    SAID.take()
}
