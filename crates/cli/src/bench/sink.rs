use super::stored::write_page;
use crate::failure::Failure;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tautline_lab::suites::Outcome;
use tautline_lab::{Machine, Results, write_machine, write_outcome};

/// Files with results. At any time they hold every suite that has ended.
pub(super) struct Sink {
    results: Results,
    json: Option<Box<dyn Write>>,
    page: Option<PathBuf>,
}

impl Sink {
    /// Creates the files. `-` for JSON is standard output.
    pub(super) fn new(machine: Machine, json: Option<&Path>, page: Option<&Path>) -> Result<Self, Failure> {
        let mut json: Option<Box<dyn Write>> = match json {
            None => None,
            Some(path) if path == Path::new("-") => Some(Box::new(io::stdout())),
            Some(path) => Some(Box::new(create(path)?)),
        };
        if let Some(json) = &mut json {
            write_machine(json, &machine).map_err(|error| failed(&error))?;
        }
        if let Some(page) = page {
            create(page)?;
        }
        let results = Results { machines: vec![machine], outcomes: Vec::new() };
        Ok(Self { results, json, page: page.map(Path::to_owned) })
    }

    /// Writes a suite.
    pub(super) fn add(&mut self, outcome: Outcome) -> Result<(), Failure> {
        if let Some(json) = &mut self.json {
            let mut text = Vec::new();
            let written = write_outcome(&mut text, &outcome).and_then(|()| json.write_all(&text));
            written.and_then(|()| json.flush()).map_err(|error| failed(&error))?;
        }
        self.results.outcomes.push(outcome);
        self.page.as_deref().map_or(Ok(()), |path| write_page(path, &self.results))
    }
}

/// The failure of a write. A reader of standard output may end; a disk may be full.
fn failed(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::output(error);
    }
    Failure::failed(format!("cannot write the results: {error}"))
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))
}
