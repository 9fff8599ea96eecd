use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::outcome::{Failure, Outcome};

/// Instructions by scenario: a line for each, the count first.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Baseline(BTreeMap<String, f64>);

impl Baseline {
    /// Reads a file; there are no scenarios if it does not exist.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map_err(|line| {
                Failure::Failed(format!("{}: {line:?} is not a count and the name of a scenario", path.display()))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// The scenarios of a text, or the line that has none.
    fn parse(text: &str) -> Result<Self, String> {
        let scenario = |line: &str| {
            let (count, name) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok().filter(|count: &f64| *count > 0.0)?))
        };
        text.lines().map(|line| scenario(line).ok_or_else(|| line.to_owned())).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn write(&self, path: &Path) -> Outcome {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, self.text())?;
        println!("written: {}", path.display());
        Ok(())
    }

    fn text(&self) -> String {
        self.0.iter().map(|(name, count)| format!("{count:.0} {name}\n")).collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// This baseline, with the scenarios of another that it lacks.
    pub(super) fn with_new(&self, other: Self) -> Self {
        let mut all = other.0;
        all.extend(self.0.iter().map(|(name, count)| (name.clone(), *count)));
        Self(all)
    }

    pub(super) fn set(&mut self, name: &str, count: f64) {
        self.0.insert(name.to_owned(), count);
    }
}

#[cfg(test)]
mod tests {
    use super::Baseline;

    #[test]
    fn survives_its_file() {
        let mut baseline = Baseline::default();
        baseline.set("echo 64 B, 16 in flight", 950.4);
        baseline.set("broadcast", 12.0);
        assert_eq!(baseline.text(), "12 broadcast\n950 echo 64 B, 16 in flight\n");
        let read = Baseline::parse(&baseline.text()).unwrap();
        assert_eq!((read.get("echo 64 B, 16 in flight"), read.get("echo")), (Some(950.0), None));
    }

    #[test]
    fn new_scenarios_leave_the_others_as_they_are() {
        let of = |text| Baseline::parse(text).unwrap();
        assert_eq!(of("12 broadcast\n").with_new(of("13 broadcast\n950 echo\n")), of("12 broadcast\n950 echo\n"));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "echo", "x echo", "0 echo", "-1 echo"] {
            assert_eq!(Baseline::parse(&format!("1 a\n{line}\n")), Err(line.to_owned()));
        }
    }
}
