//! Charts as data: each has a picture and the table behind it.

use crate::table::number;

/// A chart with its explanation.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// One or two sentences: what is shown, and which way is better.
    pub(super) note: String,
    /// Unit of all values.
    pub(super) unit: String,
    /// Panels beside each other, as published and measured.
    pub(super) panels: Vec<Panel>,
}

/// One picture of a chart.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// Empty if the chart has only one.
    pub(super) title: String,
    pub(super) body: Body,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Bars(Bars),
    Stacks(Stacks),
    Lines(Lines),
}

/// Origin of a series, which decides its look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Measured; the number of its colour.
    Measured(usize),
    /// Measured, ours beside the default.
    Beside,
    /// Measured, another project's.
    Other,
    /// From a report.
    Published,
}

impl Look {
    /// Class in the page's style.
    pub(super) const fn class(self) -> &'static str {
        // From the ninth on, colours return, with dots.
        const COLOURS: [&str; 12] =
            ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c0 again", "c1 again", "c2 again", "c3 again"];
        match self {
            Self::Measured(number) => COLOURS[number % COLOURS.len()],
            Self::Beside => "beside",
            Self::Other => "other",
            Self::Published => "published",
        }
    }
}

/// A value with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) median: f64,
    pub(super) interval: Option<[f64; 2]>,
}

impl From<f64> for Value {
    fn from(median: f64) -> Self {
        Self { median, interval: None }
    }
}

/// Horizontal bars: a group for each row, a bar for each series.
#[derive(Clone, Debug, Default)]
pub(super) struct Bars {
    pub(super) series: Vec<(String, Look)>,
    pub(super) rows: Vec<BarRow>,
    /// A value that all bars are compared with, as 1 for ratios.
    pub(super) base: Option<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct BarRow {
    pub(super) label: String,
    /// One for each series.
    pub(super) values: Vec<Option<Value>>,
    /// Look of the only series in this row, if it differs.
    pub(super) look: Option<Look>,
}

/// Bars of parts that add up.
#[derive(Clone, Debug, Default)]
pub(super) struct Stacks {
    pub(super) parts: Vec<&'static str>,
    pub(super) rows: Vec<StackRow>,
}

#[derive(Clone, Debug)]
pub(super) struct StackRow {
    pub(super) label: String,
    /// One for each part, or the reason why there is no bar.
    pub(super) values: Result<Vec<Option<f64>>, String>,
}

/// Positions of x values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    /// All neighbours have the same distance.
    Even,
    /// Powers have the same distance.
    Logarithmic,
}

/// Lines over common positions.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// Name of the x axis.
    pub(super) across: &'static str,
    /// Positions with their labels, ascending.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) spacing: Spacing,
    /// Whether the y axis is logarithmic.
    pub(super) is_log: bool,
    /// The linear y axis reaches at least to this value, so that panels have one scale.
    pub(super) top: f64,
    pub(super) series: Vec<Series>,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) look: Look,
    /// One for each tick.
    pub(super) values: Vec<Option<Value>>,
}

impl Lines {
    /// Lines over percentiles in this order, whose values have a logarithmic axis.
    pub(super) fn by_percentile<'a>(
        across: &'static str,
        percentiles: impl Iterator<Item = &'a str>,
        series: Vec<Series>,
    ) -> Self {
        let ticks = percentiles.zip(0_u8..).map(|(name, at)| (f64::from(at), name.to_owned())).collect();
        Self { across, ticks, spacing: Spacing::Even, is_log: true, top: 0.0, series }
    }
}

impl Chart {
    /// A chart with one picture.
    pub(super) fn of(title: impl Into<String>, note: impl Into<String>, unit: &str, body: Body) -> Self {
        let panels = vec![Panel { title: String::new(), body }];
        Self { title: title.into(), note: note.into(), unit: unit.to_owned(), panels }
    }

    /// Whether there is nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.panels.iter().all(|panel| panel.body.is_empty())
    }

    /// Every series once.
    pub(super) fn legend(&self) -> Vec<(String, Look)> {
        let mut legend: Vec<(String, Look)> = Vec::new();
        for (name, look) in self.panels.iter().flat_map(|panel| panel.body.series()) {
            if !legend.iter().any(|(known, _)| *known == name) {
                legend.push((name, look));
            }
        }
        legend
    }
}

impl Body {
    fn is_empty(&self) -> bool {
        match self {
            Self::Bars(bars) => bars.rows.iter().all(|row| row.values.iter().all(Option::is_none)),
            Self::Stacks(stacks) => stacks.rows.iter().all(|row| row.values.is_err()),
            Self::Lines(lines) => lines.series.iter().all(|series| series.values.iter().all(Option::is_none)),
        }
    }

    fn series(&self) -> Vec<(String, Look)> {
        match self {
            Self::Bars(bars) => bars.series.clone(),
            Self::Stacks(stacks) => {
                let named = |(number, part): (usize, &&str)| ((*part).to_owned(), Look::Measured(number));
                stacks.parts.iter().enumerate().map(named).collect()
            }
            Self::Lines(lines) => lines.series.iter().map(|series| (series.name.clone(), series.look)).collect(),
        }
    }

    /// Titles of the columns, and rows with their labels.
    pub(super) fn cells(&self) -> (Vec<String>, Vec<(String, Vec<String>)>) {
        match self {
            Self::Bars(bars) => {
                let names = bars.series.iter().map(|(name, _)| name.clone());
                let cells = |row: &BarRow| row.values.iter().copied().map(cell).collect();
                let rows = bars.rows.iter().map(|row| (row.label.clone(), cells(row)));
                ([String::new()].into_iter().chain(names).collect(), rows.collect())
            }
            Self::Stacks(stacks) => {
                let titles = ["", "sum"].into_iter().chain(stacks.parts.iter().copied()).map(str::to_owned).collect();
                let rows = stacks.rows.iter().map(|row| match &row.values {
                    Ok(values) => {
                        let sum: f64 = values.iter().flatten().sum();
                        let parts = values.iter().map(|value| value.map_or_else(|| "–".to_owned(), number));
                        (row.label.clone(), [number(sum)].into_iter().chain(parts).collect())
                    }
                    Err(why) => (row.label.clone(), vec![why.clone()]),
                });
                (titles, rows.collect())
            }
            Self::Lines(lines) => {
                let titles = [lines.across.to_owned()].into_iter();
                let titles = titles.chain(lines.series.iter().map(|series| series.name.clone())).collect();
                let rows = lines.ticks.iter().enumerate().map(|(at, (_, label))| {
                    let value = |series: &Series| cell(series.values.get(at).copied().flatten());
                    (label.clone(), lines.series.iter().map(value).collect())
                });
                (titles, rows.collect())
            }
        }
    }
}

/// A value with its interval in words.
pub(super) fn cell(value: Option<Value>) -> String {
    match value {
        Some(Value { median, interval: Some([low, high]) }) if low < high => {
            format!("{} ({}–{})", number(median), number(low), number(high))
        }
        Some(Value { median, .. }) => number(median),
        None => "–".to_owned(),
    }
}
