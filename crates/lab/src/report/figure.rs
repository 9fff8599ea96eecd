//! The element of a chart: caption, legend, pictures, and the table behind them.

use super::chart::{Chart, Panel};
use super::draw;
use maud::{Markup, html};

/// A chart as an element. `id` is unique on the page.
pub(super) fn figure(chart: &Chart, id: &str) -> Markup {
    let legend = chart.legend();
    let is_wide = chart.panels.len() > 1;
    html! {
        figure.chart.wide[is_wide] id=(id) {
            figcaption {
                h4 { (chart.title) @if !chart.unit.is_empty() { " " span.unit { (chart.unit) } } }
                p { (chart.note) }
            }
            @if legend.len() > 1 {
                ul.legend aria-hidden="true" {
                    @for (name, look) in &legend { li { span class={ "key " (look.class()) } {} (name) } }
                }
            }
            div.panels {
                @for panel in &chart.panels {
                    div.panel {
                        @if !panel.title.is_empty() { h5 { (panel.title) } }
                        (draw::picture(&panel.body, &name_of(chart, panel)))
                    }
                }
            }
            details.behind {
                summary { "Table of these figures" }
                @for panel in &chart.panels {
                    @let name = name_of(chart, panel);
                    div.scroll tabindex="0" role="region" aria-label={ "Table: " (name) } { (table(chart, panel, &name)) }
                }
            }
        }
    }
}

fn name_of(chart: &Chart, panel: &Panel) -> String {
    if panel.title.is_empty() { chart.title.clone() } else { format!("{}: {}", chart.title, panel.title) }
}

fn table(chart: &Chart, panel: &Panel, name: &str) -> Markup {
    let (titles, rows) = panel.body.cells();
    html! {
        table {
            caption { (name) @if !chart.unit.is_empty() { ", " (chart.unit) } }
            thead { tr { @for title in &titles { th scope="col" { (title) } } } }
            tbody {
                @for (label, cells) in &rows {
                    tr { th scope="row" { (label) } @for cell in cells { td { (cell) } } }
                }
            }
        }
    }
}
