//! The log on standard error. Its filter can change while the program runs.

use crate::output;
use log::{LevelFilter, Log, Metadata, Record};
use std::sync::{Arc, PoisonError, RwLock};
use tautline::LogLevel;

/// The filter of the log. Clones are the same one.
#[derive(Clone)]
pub(crate) struct LogFilter(Arc<RwLock<Active>>);

struct Active {
    /// The level of what `words` does not name.
    base: LevelFilter,
    words: String,
    filter: env_filter::Filter,
}

/// Starts the log: with a level by the number of `-v`, and the filter in RUST_LOG.
pub(crate) fn start(verbose: u8) -> LogFilter {
    let base = match verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Trace,
    };
    let words = std::env::var("RUST_LOG").unwrap_or_default();
    let (words, wrong) = match parse(base, &words) {
        Ok(_) if !words.trim().is_empty() => (words, None),
        result => (base.as_str().to_ascii_lowercase(), result.err()),
    };
    let filter = parse(base, &words).unwrap_or_else(|_| env_filter::Builder::new().filter_level(base).build());
    log::set_max_level(filter.filter());
    let shared = LogFilter(Arc::new(RwLock::new(Active { base, words, filter })));
    // There is no other logger in this program.
    let _ = log::set_boxed_logger(Box::new(Filtered(shared.clone())));
    if let Some(error) = wrong {
        log::warn!("RUST_LOG is not used: {error}");
    }
    shared
}

fn parse(base: LevelFilter, words: &str) -> Result<env_filter::Filter, String> {
    let mut builder = env_filter::Builder::new();
    builder.filter_level(base).try_parse(words).map_err(|error| error.to_string())?;
    Ok(builder.build())
}

impl LogLevel for LogFilter {
    fn get(&self) -> String {
        self.0.read().unwrap_or_else(PoisonError::into_inner).words.clone()
    }

    fn set(&self, words: &str) -> Result<(), String> {
        // As the name of a module, a slip would be taken and change nothing.
        let is_known = |word: &str| word.contains('=') || word.trim().parse::<LevelFilter>().is_ok();
        if !words.split(',').all(is_known) {
            return Err("write off, error, warn, info, debug or trace, or MODULE=LEVEL, with commas between".to_owned());
        }
        let mut active = self.0.write().unwrap_or_else(PoisonError::into_inner);
        active.filter = parse(active.base, words)?;
        words.clone_into(&mut active.words);
        log::set_max_level(active.filter.filter());
        Ok(())
    }
}

/// A logger of the lines that pass the filter.
struct Filtered(LogFilter);

impl Log for Filtered {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.0.read().unwrap_or_else(PoisonError::into_inner).filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.0.0.read().unwrap_or_else(PoisonError::into_inner).filter.matches(record) {
            output::log(record.level(), record.target(), &record.args().to_string());
        }
    }

    fn flush(&self) {
        output::finish();
    }
}

#[cfg(test)]
mod tests {
    use super::{Active, LogFilter, parse};
    use log::{Level, LevelFilter, Metadata};
    use std::sync::{Arc, RwLock};
    use tautline::LogLevel;

    #[test]
    fn the_filter_changes_as_a_whole_or_not_at_all() {
        let base = LevelFilter::Warn;
        let active = Active { base, words: "warn".to_owned(), filter: parse(base, "warn").unwrap() };
        let filter = LogFilter(Arc::new(RwLock::new(active)));
        let shows = |target: &str, level| {
            filter.0.read().unwrap().filter.enabled(&Metadata::builder().target(target).level(level).build())
        };
        assert!(shows("a", Level::Warn) && !shows("a", Level::Info));
        filter.set("tautline_io=debug").unwrap();
        assert!(shows("tautline_io::epoll", Level::Debug) && shows("a", Level::Warn) && !shows("a", Level::Info));
        for slip in ["inof", "", "a=loud", "info,debgu"] {
            assert!(filter.set(slip).is_err(), "{slip:?}");
        }
        assert_eq!(filter.get(), "tautline_io=debug");
        filter.set("error").unwrap();
        assert!(shows("tautline_io", Level::Error) && !shows("tautline_io", Level::Warn));
    }
}
