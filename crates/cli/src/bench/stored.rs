//! Commands for stored results.

use crate::failure::Failure;
use crate::output;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use tautline_lab::report::write_html;
use tautline_lab::{Results, compare};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Make the page from results of `taut bench --json`.
    #[command(after_help = "Example:\n  taut bench report results.jsonl more.jsonl --output page.html")]
    Report {
        /// Files with results. If a suite is in several, the last one counts.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        /// The page.
        #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
        output: PathBuf,
    },
    /// Compare two runs, figure by figure. Exits with 1 if a figure is surely worse.
    ///
    /// A figure is worse if the 95 % interval of its ratios, round by round, lies beyond the tolerance, and no round of the second
    /// run is as good as any of the first. This takes at least three rounds; results without --quick have more.
    #[command(after_help = "Example:\n  taut bench diff before.jsonl after.jsonl --tolerance 10")]
    Diff {
        /// Results of the earlier run.
        #[arg(value_name = "BEFORE")]
        before: PathBuf,
        /// Results of the later run.
        #[arg(value_name = "AFTER")]
        after: PathBuf,
        /// Change in % that is none.
        #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent)]
        tolerance: f64,
    },
}

impl Command {
    pub(super) fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Report { files, output } => {
                let mut results = Results::default();
                for file in files {
                    results.add(read(file)?);
                }
                write_page(output, &results)
            }
            Self::Diff { before, after, tolerance } => {
                let found = compare(&read(before)?, &read(after)?, tolerance / 100.0);
                output::print(&found.text)?;
                if found.compared == 0 {
                    return Err(Failure::usage("the two files have no figure in common: run the same suites"));
                }
                if found.regressions == 0 {
                    return Ok(());
                }
                let (worse, all) = (found.regressions, found.compared);
                Err(Failure::failed(format!("{worse} of {all} figures are worse by more than {tolerance} %")))
            }
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.parse().ok().filter(|value| (0.0..=1000.0).contains(value));
    value.ok_or_else(|| "write a number of percent from 0 on, as 5".to_owned())
}

fn read(path: &Path) -> Result<Results, Failure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    Ok(Results::read(&name, BufReader::new(file))?)
}

/// Writes the page in place of an earlier one.
pub(super) fn write_page(path: &Path, results: &Results) -> Result<(), Failure> {
    let mut page = Vec::new();
    let written = write_html(&mut page, results).and_then(|()| std::fs::write(path, page));
    written.map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))
}
