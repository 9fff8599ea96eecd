//! A page with the printed tables of a run and every figure behind them.

use crate::suites::Outcome;
use crate::table::number;
use crate::{Line, Machine};
use serde_json::Value;
use std::fmt::{self, Display, Write as _};
use std::io;

/// Writes a self-contained page.
///
/// # Errors
/// `out` failed.
pub fn write_html(out: &mut impl io::Write, machine: &Machine, outcomes: &[Outcome]) -> io::Result<()> {
    out.write_all(page(machine, outcomes).as_bytes())?;
    out.flush()
}

fn page(machine: &Machine, outcomes: &[Outcome]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>taut bench</title>\n<style>{STYLE}</style>\n\
         <h1>taut bench</h1>\n<pre>{}</pre>\n",
        Escaped(machine)
    );
    // Writing to a string cannot fail.
    for outcome in outcomes {
        let _ = write!(page, "<h2>{}</h2>\n<pre>{}</pre>\n", Escaped(outcome.suite), Escaped(outcome.text.trim_end()));
        for warning in &outcome.warnings {
            let _ = writeln!(page, "<p class=\"note\">Note: {}</p>", Escaped(warning));
        }
        if let Some(advice) = &outcome.advice {
            let _ = writeln!(page, "<p><strong>Advice:</strong> {}</p>", Escaped(advice));
        }
        page.push_str(HEAD);
        for line in &outcome.lines {
            row(&mut page, line);
        }
        page.push_str("</table></details>\n");
    }
    page
}

const STYLE: &str = "body{font:16px/1.5 sans-serif;max-width:70em;margin:2em auto;padding:0 1em}\
                     pre{font-size:13px;overflow-x:auto}table{border-collapse:collapse;font-size:13px}\
                     td,th{padding:.1em .6em;text-align:right;border-bottom:1px solid #ccc}\
                     td:first-child,th:first-child{text-align:left}.note{color:#666}";

const HEAD: &str = "<details><summary>Every figure</summary><table>\n<tr><th>case<th>metric<th>median<th>least<th>most\
                    <th>unit<th>rounds<th>published<th>measured / published\n";

fn row(page: &mut String, line: &Line) {
    let least = line.runs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = line.runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let published = line.published.map(number).unwrap_or_default();
    let ratio = line.published.map(|published| number(line.value / published)).unwrap_or_default();
    let metric = serde_json::to_value(line.metric).unwrap_or_default();
    let _ = writeln!(
        page,
        "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{published}<td>{ratio}",
        Escaped(case(line)),
        Escaped(metric.as_str().unwrap_or("")),
        number(line.value),
        number(least),
        number(most),
        Escaped(line.unit),
        line.runs.len(),
    );
}

/// The case as `key=value`, with the keys of the JSON lines.
fn case(line: &Line) -> String {
    let Ok(Value::Object(keys)) = serde_json::to_value(&line.case) else { return String::new() };
    let pairs: Vec<String> = keys
        .iter()
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={other}"),
        })
        .collect();
    pairs.join(" ")
}

/// Text without markup for a browser.
struct Escaped<T>(T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string().chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Case, Metric, Protocol};

    #[test]
    fn a_page_has_the_tables_and_every_figure() {
        let case = Case { protocol: Some(Protocol::Wss), size: Some(64), ..Case::default() };
        let line = Line::new("echo", &case, Metric::Throughput, &[1000.0, 3000.0, 2000.0]).unwrap();
        let outcome = Outcome {
            suite: "echo",
            lines: vec![line],
            text: "size <64>".into(),
            warnings: vec!["a & b".into()],
            advice: Some("none".into()),
        };
        let page = page(&Machine::here(), &[outcome]);
        for part in ["<h2>echo</h2>", "size &lt;64&gt;", "Note: a &amp; b", "none", "protocol=wss size=64"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        let row = page.lines().find(|line| line.starts_with("<tr><td>")).unwrap();
        assert!(row.contains("<td>throughput<td>2,000<td>1,000<td>3,000<td>msg/s<td>3<td>"), "{row}");
    }
}
