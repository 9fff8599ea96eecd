//! Numbers and tables for terminals and files.

use std::fmt;

/// Most characters in a line of a table.
pub const WIDTH: usize = 100;

/// Gap between columns.
const GAP: usize = 2;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// A table for a terminal or a file: aligned, at most [`WIDTH`] characters wide, units in its header, no colour.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. A title that begins with `<` makes a column of text; all others hold numbers.
    #[must_use]
    pub fn new(titles: &[&str]) -> Self {
        let columns = titles
            .iter()
            .map(|title| match title.strip_prefix('<') {
                Some(text) => (text.to_owned(), Align::Left),
                None => ((*title).to_owned(), Align::Right),
            })
            .collect();
        Self { columns, rows: Vec::new() }
    }

    /// A table of rows whose cells stand beside the titles of their columns, see [`new`](Self::new).
    #[must_use]
    pub fn of<const N: usize>(rows: impl IntoIterator<Item = [(&'static str, String); N]>) -> Self {
        let mut rows = rows.into_iter().peekable();
        let titles = rows.peek().map(|row| row.each_ref().map(|(title, _)| *title));
        let mut table = Self::new(titles.as_ref().map_or(&[], |titles| titles.as_slice()));
        rows.for_each(|row| table.row(row.map(|(_, cell)| cell)));
        table
    }

    /// Appends a row; missing cells are empty, excess cells are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Whether the table has no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table below `text`; without rows, neither.
    #[must_use]
    pub fn below(&self, text: &str) -> String {
        if self.is_empty() { String::new() } else { format!("{text}\n\n{self}") }
    }

    /// Widths of the columns, reduced until the table fits: the widest column of text first, numbers last.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let title = self.columns[i].0.chars().count();
                self.rows.iter().map(|row| row[i].chars().count()).fold(title, usize::max)
            })
            .collect();
        while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > WIDTH {
            let text = |i: &usize| self.columns[*i].1 == Align::Left && widths[*i] > 1;
            let widest = (0..widths.len())
                .filter(text)
                .max_by_key(|&i| widths[i])
                .or_else(|| (0..widths.len()).filter(|&i| widths[i] > 1).max_by_key(|&i| widths[i]));
            let Some(widest) = widest else { break };
            widths[widest] -= 1;
        }
        widths
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let header: Vec<String> = self.columns.iter().map(|(title, _)| title.clone()).collect();
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        for row in [&header, &rule].into_iter().chain(&self.rows) {
            let cells = row.iter().zip(&self.columns).zip(&widths).map(|((cell, (_, align)), &width)| {
                let cell = cut(cell, width);
                match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                }
            });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end())?;
        }
        Ok(())
    }
}

/// At most `width` characters; an ellipsis marks missing ones.
fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    let mut text: String = cell.chars().take(width.saturating_sub(1)).collect();
    text.push('…');
    text
}

/// Three significant digits, all digits above 100, thousands separated: `0.123`, `4.56`, `78.9`, `186,513`.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let magnitude = value.abs();
    if magnitude < 9.995 && magnitude != 0.0 {
        let decimals = if magnitude < 0.0995 { 3 } else { 2 };
        return format!("{value:.decimals$}");
    }
    if magnitude < 99.95 && magnitude != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{magnitude:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0.0 {
        text.push('-');
    }
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// [`number`], or a dash for `None`.
#[must_use]
pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// Bytes with a binary unit: `64 B`, `1 KiB`, `16 KiB`, `1.5 MiB`.
#[must_use]
pub fn bytes(count: u64) -> String {
    for (unit, size) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if count >= size {
            let decimals = usize::from(!count.is_multiple_of(size));
            return format!("{:.decimals$} {unit}", count as f64 / size as f64);
        }
    }
    format!("{count} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0123, "0.012"),
            (0.5, "0.50"),
            (4.559, "4.56"),
            (9.996, "10.0"),
            (78.94, "78.9"),
            (99.96, "100"),
            (1000.4, "1,000"),
            (186_513.0, "186,513"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!((optional(None), optional(Some(2.0))), ("-".to_owned(), "2.00".to_owned()));
    }

    #[test]
    fn sizes_have_binary_units() {
        for (count, text) in [(64, "64 B"), (1024, "1 KiB"), (16_384, "16 KiB"), (1_572_864, "1.5 MiB")] {
            assert_eq!(bytes(count), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["<case", "us/msg", "x"]);
        table.row(["ws".into(), "4.10".into(), "1.0".into()]);
        table.row(["wss rustls".into(), "12.30".into()]);
        assert_eq!(
            table.to_string(),
            "case        us/msg    x\n\
             ----------  ------  ---\n\
             ws            4.10  1.0\n\
             wss rustls   12.30\n"
        );
    }

    #[test]
    fn no_table_is_wider_than_the_limit() {
        let mut table = Table::new(&["<a", "<b", "c", "d"]);
        table.row(["ä".repeat(150), "b".repeat(70), "123,456".into(), "7".repeat(30)]);
        table.row(["short".into(), "x".into(), "1".into(), "2".into()]);
        let text = table.to_string();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains('…') && text.contains("123,456") && text.contains(&"7".repeat(30)), "{text}");
    }

    #[test]
    fn numbers_are_cut_if_nothing_else_can_be() {
        let mut table = Table::new(&["c", "d"]);
        table.row(["1".repeat(90), "2".repeat(90)]);
        assert!(table.to_string().lines().all(|line| line.chars().count() <= WIDTH));
    }
}
