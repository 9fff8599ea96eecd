//! The text format 0.0.4 of Prometheus, for scrapers that do not read OpenMetrics.
//!
//! It is written from a text of OpenMetrics, whose lines differ little: a counter's family has the suffix `_total`, there are no
//! units, no exemplars and no end, and fewer types.

use std::fmt::Write as _;

/// The text of OpenMetrics in the format 0.0.4.
pub(crate) fn to_plain(open: &str) -> String {
    let mut plain = String::with_capacity(open.len());
    // The help of a family comes before its type, on which its name here depends.
    let mut help = ("", "");
    for line in open.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            plain.push_str(without_exemplar(line));
            plain.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), text) => help = (name, text.unwrap_or_default()),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "gauge" | "histogram" | "summary" => ("", kind),
                    _ => ("", "untyped"),
                };
                if help.0 == name {
                    // A string takes everything.
                    let _ = writeln!(plain, "# HELP {name}{suffix} {}", help.1.replace("\\\"", "\""));
                }
                let _ = writeln!(plain, "# TYPE {name}{suffix} {kind}");
            }
            _ => {}
        }
    }
    plain
}

/// A sample without the exemplar that may follow its value.
fn without_exemplar(sample: &str) -> &str {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in sample.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            b'#' if !is_quoted => return sample[..at].trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::to_plain;

    #[test]
    fn each_type_is_written_as_the_older_format_has_it() {
        let open = "# HELP shop_orders Orders \\\"taken\\\", a \\\\ and a \\n.\n# TYPE shop_orders counter\nshop_orders_total{by=\"a # b\\\"\"} 7\n\
                    # HELP build Version.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP size_bytes Size.\n# TYPE size_bytes gauge\n# UNIT size_bytes bytes\nsize_bytes 5\n\
                    # HELP wait_seconds Wait.\n# TYPE wait_seconds histogram\n# UNIT wait_seconds seconds\n\
                    wait_seconds_sum 1.5\nwait_seconds_count 2\n\
                    wait_seconds_bucket{le=\"+Inf\"} 2 # {trace=\"x\"} 0.5\n\
                    # TYPE other unknown\nother 1\n# EOF\n";
        let plain = "# HELP shop_orders_total Orders \"taken\", a \\\\ and a \\n.\n# TYPE shop_orders_total counter\nshop_orders_total{by=\"a # b\\\"\"} 7\n\
                     # HELP build_info Version.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
                     # HELP size_bytes Size.\n# TYPE size_bytes gauge\nsize_bytes 5\n\
                     # HELP wait_seconds Wait.\n# TYPE wait_seconds histogram\n\
                     wait_seconds_sum 1.5\nwait_seconds_count 2\nwait_seconds_bucket{le=\"+Inf\"} 2\n\
                     # TYPE other untyped\nother 1\n";
        assert_eq!(to_plain(open), plain);
    }
}
