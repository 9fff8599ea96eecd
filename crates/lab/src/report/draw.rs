//! Pictures of charts as SVG.
//!
//! Crates for charts draw colours and sizes of text into the picture. Here the page's style decides on both, so one picture
//! serves light and dark, paper and a phone, and each mark has its value for a pointer.

use super::chart::{Bars, Body, Lines, Look, Spacing, Stacks, Value, cell};
use crate::table::number;
use maud::{Markup, html};

/// Width of all pictures in their own units. The page scales them.
const WIDTH: f64 = 440.0;

/// Width of a character of the page's small text, at most.
const CHARACTER: f64 = 7.4;

/// Room for values behind bars.
const BEHIND: f64 = 62.0;

/// Most characters of a label before a bar.
const LABEL: usize = 26;

/// A picture with a name for those who do not see it.
pub(super) fn picture(body: &Body, name: &str) -> Markup {
    match body {
        Body::Bars(bars) => draw_bars(bars, name),
        Body::Stacks(stacks) => draw_stacks(stacks, name),
        Body::Lines(lines) => draw_lines(lines, name),
    }
}

/// The element around marks.
fn canvas(height: f64, name: &str, marks: &Markup) -> Markup {
    html! {
        svg role="img" aria-label={ (name) ". The table below has its figures." } viewBox={ "0 0 " (WIDTH) " " (height) }
            preserveAspectRatio="xMinYMin meet" { (marks) }
    }
}

/// A coordinate with one decimal.
fn at(value: f64) -> String {
    format!("{value:.1}")
}

/// Cuts a label to its room.
fn short(label: &str) -> String {
    if label.chars().count() <= LABEL {
        return label.to_owned();
    }
    label.chars().take(LABEL - 1).chain(['…']).collect()
}

fn label_width<'a>(labels: impl Iterator<Item = &'a str>) -> f64 {
    let longest = labels.map(|label| label.chars().count().min(LABEL)).max().unwrap_or(0);
    longest as f64 * CHARACTER + 10.0
}

/// Round values from 0 to `most` or a little more, four to six of them.
fn round_values(most: f64) -> Vec<f64> {
    if !most.is_finite() || most <= 0.0 {
        return vec![0.0, 1.0];
    }
    let rough = most / 4.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(power * 10.0);
    let steps = (0_u8..=9).map(|count| f64::from(count) * step);
    let mut values: Vec<f64> = steps.clone().take_while(|value| *value < most).collect();
    values.extend(steps.clone().find(|value| *value >= most));
    values
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

fn draw_bars(bars: &Bars, name: &str) -> Markup {
    const BAR: f64 = 12.0;
    const GAP: f64 = 9.0;
    let left = label_width(bars.rows.iter().map(|row| row.label.as_str()));
    let values = bars.rows.iter().flat_map(|row| row.values.iter().flatten().map(|value| value.median));
    let ends = bars.rows.iter().flat_map(|row| row.values.iter().flatten().filter_map(|value| value.interval));
    let top = most(values.chain(ends.map(|ends| ends[1])).chain(bars.base));
    let scale = (WIDTH - left - BEHIND) / if top > 0.0 { top } else { 1.0 };
    let row_height = |count: usize| count as f64 * (BAR + 2.0) + GAP;
    let mut y = 4.0;
    let mut marks = Vec::new();
    for row in &bars.rows {
        let height = row_height(row.values.len());
        let middle = y + (height - GAP) / 2.0;
        marks.push(html! {
            text.label x=(at(left - 8.0)) y=(at(middle + 4.0)) text-anchor="end" {
                (short(&row.label)) title { (row.label) }
            }
        });
        for (number_of, value) in row.values.iter().enumerate() {
            let look = row.look.or_else(|| bars.series.get(number_of).map(|(_, look)| *look));
            let look = look.unwrap_or(Look::Measured(0));
            let top = y + number_of as f64 * (BAR + 2.0);
            let who = bars.series.get(number_of).map(|(name, _)| name.as_str()).unwrap_or_default();
            marks.push(bar(*value, look, [left, top, BAR, scale], &format!("{}, {who}", row.label)));
        }
        y += height;
    }
    let base = bars.base.map(|base| left + base * scale);
    let marks = html! {
        @if let Some(x) = base { line.base x1=(at(x)) x2=(at(x)) y1="0" y2=(at(y - GAP + 4.0)) {} }
        @for mark in &marks { (mark) }
    };
    canvas(y, name, &marks)
}

/// One bar with its value behind it. `[left, top, thickness, scale]` is its place.
fn bar(value: Option<Value>, look: Look, [left, top, thick, scale]: [f64; 4], told: &str) -> Markup {
    let Some(value) = value.filter(|value| value.median.is_finite()) else {
        return html! { text.none x=(at(left + 4.0)) y=(at(top + thick - 2.0)) { "–" } };
    };
    let width = (value.median.max(0.0) * scale).max(1.0);
    let middle = top + thick / 2.0;
    let interval = value.interval.filter(|[low, high]| low < high).map(|ends| ends.map(|end| left + end * scale));
    let end = interval.map_or(left + width, |[_, high]| high.max(left + width));
    html! {
        rect class={ "mark " (look.class()) } x=(at(left)) y=(at(top)) width=(at(width)) height=(at(thick)) rx="2" {
            title { (told) ": " (cell(Some(value))) }
        }
        @if let Some([low, high]) = interval {
            path.whisker d={ "M" (at(low)) " " (at(middle)) "H" (at(high)) } {}
        }
        text.value x=(at(end + 5.0)) y=(at(top + thick - 1.5)) { (number(value.median)) }
    }
}

fn draw_stacks(stacks: &Stacks, name: &str) -> Markup {
    const BAR: f64 = 17.0;
    const ROW: f64 = 25.0;
    let left = label_width(stacks.rows.iter().map(|row| row.label.as_str()));
    let sum = |values: &[Option<f64>]| values.iter().flatten().sum::<f64>();
    let top = most(stacks.rows.iter().filter_map(|row| row.values.as_deref().ok()).map(sum));
    let scale = (WIDTH - left - BEHIND) / if top > 0.0 { top } else { 1.0 };
    let marks = html! {
        @for (place, row) in stacks.rows.iter().enumerate() {
            @let y = place as f64 * ROW + 3.0;
            text.label x=(at(left - 8.0)) y=(at(y + 13.0)) text-anchor="end" {
                (short(&row.label)) title { (row.label) }
            }
            @match &row.values {
                Ok(values) => {
                    @for (number_of, value) in values.iter().enumerate() {
                        @if let Some(value) = value.filter(|value| *value > 0.0) {
                            @let before = sum(&values[..number_of]);
                            rect class={ "mark part " (Look::Measured(number_of).class()) } x=(at(left + before * scale)) y=(at(y))
                                width=(at(value * scale)) height=(at(BAR)) {
                                title { (row.label) ", " (stacks.parts[number_of]) ": " (number(value)) }
                            }
                        }
                    }
                    text.value x=(at(left + sum(values) * scale + 5.0)) y=(at(y + 13.0)) { (number(sum(values))) }
                }
                Err(why) => {
                    text.none x=(at(left)) y=(at(y + 13.0)) {
                        "not here" title { (row.label) ": " (why) }
                    }
                }
            }
        }
    };
    canvas(stacks.rows.len() as f64 * ROW + 4.0, name, &marks)
}

/// Place of a line chart's marks.
struct Frame {
    left: f64,
    height: f64,
    /// Ends of the x and of the y axis, logarithms where an axis is one.
    x: [f64; 2],
    y: [f64; 2],
    spacing: Spacing,
    is_log: bool,
}

impl Frame {
    const TOP: f64 = 8.0;
    const RIGHT: f64 = WIDTH - 16.0;

    fn x(&self, place: usize, value: f64) -> f64 {
        let value = if self.spacing == Spacing::Even { place as f64 } else { value.ln() };
        let share = (value - self.x[0]) / (self.x[1] - self.x[0]).max(f64::MIN_POSITIVE);
        self.left + share.clamp(0.0, 1.0) * (Self::RIGHT - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = (value - self.y[0]) / (self.y[1] - self.y[0]).max(f64::MIN_POSITIVE);
        self.height - share.clamp(0.0, 1.0) * (self.height - Self::TOP)
    }
}

/// A round number without zeros that say nothing.
pub(super) fn tick(value: f64) -> String {
    let text = number(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Values of a logarithmic axis: powers of ten, with their halves if there are few.
fn powers(least: f64, most: f64) -> Vec<f64> {
    if !(least > 0.0 && least <= most && most.is_finite()) {
        return vec![1.0, 10.0];
    }
    #[expect(clippy::cast_possible_truncation, reason = "powers of ten of finite numbers are small")]
    let (first, last) = (least.log10().floor() as i32, (most * 0.999).log10().ceil() as i32);
    let steps: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    let all: Vec<f64> = all.collect();
    let low = all.iter().rposition(|value| *value <= least).unwrap_or(0);
    let high = all.iter().position(|value| *value >= most).unwrap_or(all.len() - 1);
    all[low..=high.max(low + 1).min(all.len() - 1)].to_vec()
}

fn draw_lines(lines: &Lines, name: &str) -> Markup {
    let values = || lines.series.iter().flat_map(|series| series.values.iter().flatten().map(|value| value.median));
    let least = values().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let grid =
        if lines.is_log { powers(least, most(values())) } else { round_values(most(values().chain([lines.top]))) };
    let ends = [grid.first().copied().unwrap_or(0.0), grid.last().copied().unwrap_or(1.0)];
    let left = label_width(grid.iter().map(|value| tick(*value)).collect::<Vec<_>>().iter().map(String::as_str));
    let edge = |at: Option<&(f64, String)>| at.map_or(0.0, |(value, _)| value.max(f64::MIN_POSITIVE).ln());
    let x = match lines.spacing {
        Spacing::Even => [0.0, lines.ticks.len().saturating_sub(1).max(1) as f64],
        Spacing::Logarithmic => [edge(lines.ticks.first()), edge(lines.ticks.last())],
    };
    let y = if lines.is_log { ends.map(f64::ln) } else { ends };
    let frame = Frame { left, height: 210.0, x, y, spacing: lines.spacing, is_log: lines.is_log };
    // Labels that would touch each other are left out.
    let every = lines.ticks.len().div_ceil(8).max(1);
    let marks = html! {
        @for value in &grid {
            @let y = frame.y(*value);
            line.grid x1=(at(left)) x2=(at(Frame::RIGHT)) y1=(at(y)) y2=(at(y)) {}
            text.tick x=(at(left - 7.0)) y=(at(y + 4.0)) text-anchor="end" { (tick(*value)) }
        }
        @for (place, (value, label)) in lines.ticks.iter().enumerate().filter(|(place, _)| place % every == 0) {
            text.tick x=(at(frame.x(place, *value))) y="228" text-anchor="middle" { (label) }
        }
        text.axis x=(at((left + Frame::RIGHT) / 2.0)) y="246" text-anchor="middle" { (lines.across) }
        @for series in &lines.series { (line(series.look, &series.name, &series.values, lines, &frame)) }
    };
    canvas(252.0, name, &marks)
}

/// One line with its points.
fn line(look: Look, name: &str, values: &[Option<Value>], lines: &Lines, frame: &Frame) -> Markup {
    let points: Vec<_> = (lines.ticks.iter().zip(values).enumerate())
        .filter_map(|(place, ((x, label), value))| {
            let value = value.filter(|value| value.median.is_finite())?;
            Some((frame.x(place, *x), frame.y(value.median), label, value))
        })
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y, ..)| format!("{x:.1},{y:.1}")).collect();
    html! {
        g class={ "series " (look.class()) } {
            polyline points=(path.join(" ")) {}
            @for (x, y, label, value) in &points {
                circle cx=(at(*x)) cy=(at(*y)) r="3.2" { title { (name) ", " (label) ": " (cell(Some(*value))) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_few_round_values_that_hold_all() {
        assert_eq!(round_values(0.0), [0.0, 1.0]);
        assert_eq!(round_values(7.0), [0.0, 2.0, 4.0, 6.0, 8.0]);
        for most in [0.013, 1.0, 9.9, 101.0, 186_513.0, 1e12] {
            let values = round_values(most);
            assert!((3..=8).contains(&values.len()) && values[values.len() - 1] >= most, "{most}: {values:?}");
        }
    }

    #[test]
    fn logarithmic_axes_hold_all_values() {
        for (least, most) in [(1.0, 1.0), (0.02, 0.9), (3.0, 4.0), (12.0, 90_000.0), (1.0, 1000.0)] {
            let values = powers(least, most);
            let (first, last) = (values[0], values[values.len() - 1]);
            assert!(values.len() >= 2 && first <= least && last >= most * 0.999, "{least} {most}: {values:?}");
        }
        assert_eq!(powers(f64::INFINITY, 0.0), [1.0, 10.0]);
    }

    #[test]
    fn marks_lie_inside_the_picture() {
        let lines = Lines {
            across: "threads",
            ticks: vec![(1.0, "1".to_owned()), (8.0, "8".to_owned())],
            spacing: Spacing::Logarithmic,
            is_log: true,
            top: 0.0,
            series: Vec::new(),
        };
        let frame = Frame {
            left: 40.0,
            height: 210.0,
            x: [0.0, 8_f64.ln()],
            y: [0.0, 5.0],
            spacing: lines.spacing,
            is_log: true,
        };
        assert_eq!([frame.x(0, 1.0), frame.x(1, 8.0)], [40.0, Frame::RIGHT]);
        assert_eq!([frame.y(1.0), frame.y(1e9)], [210.0, Frame::TOP]);
        assert!(picture(&Body::Lines(lines), "empty").into_string().contains("</svg>"));
    }

    #[test]
    fn text_of_a_picture_is_escaped() {
        let bars = Bars {
            series: vec![("<b>".to_owned(), Look::Measured(0))],
            rows: vec![super::super::chart::BarRow {
                label: "</svg><script>".to_owned(),
                values: vec![Some(2.0.into())],
                look: None,
            }],
            base: None,
        };
        let text = picture(&Body::Bars(bars), "\"><i>").into_string();
        assert!(!text.contains("<script") && !text.contains("<b>") && !text.contains("<i>"), "{text}");
    }
}
