//! The format of metrics that a scraper prefers.

use http::{HeaderMap, header};

/// Whether a scraper prefers the text format 0.0.4 to OpenMetrics, by its `Accept`.
pub(super) fn prefers_plain(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut plain, mut open) = (Preference::default(), Preference::default());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut version) = (1.0, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match &*name.trim().to_ascii_lowercase() {
                "q" => weight = value.trim().parse().unwrap_or(0.0),
                "version" => version = Some(value.trim().trim_matches('"').to_owned()),
                _ => {}
            }
        }
        match &*kind {
            "application/openmetrics-text" => open.add(2, weight),
            "application/*" => open.add(1, weight),
            "text/plain" if version.is_none_or(|version| version == "0.0.4") => plain.add(2, weight),
            "text/*" => plain.add(1, weight),
            "*/*" => {
                open.add(0, weight);
                plain.add(0, weight);
            }
            _ => {}
        }
    }
    plain.weight > open.weight
}

/// The weight of the most specific range that names a format (RFC 9110 section 12.5.1).
#[derive(Default)]
struct Preference {
    specific: u8,
    weight: f64,
}

impl Preference {
    fn add(&mut self, specific: u8, weight: f64) {
        if specific > self.specific || (specific == self.specific && weight > self.weight) {
            (self.specific, self.weight) = (specific, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::prefers_plain;
    use http::{HeaderMap, HeaderValue, header};

    #[test]
    fn the_heavier_format_is_chosen_and_openmetrics_if_both_are_as_good() {
        for (accept, plain) in [
            ("", false),
            ("*/*", false),
            ("text/html,application/xhtml+xml,*/*;q=0.8", false),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", false),
            ("application/openmetrics-text, text/plain", false),
            ("text/plain", true),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", true),
            ("TEXT/PLAIN; Version=0.0.4", true),
            ("text/plain;version=1.0.0;escaping=allow-utf-8", false),
            ("text/*;q=0.9, application/*;q=0.2", true),
            ("application/openmetrics-text;q=0, */*", true),
            ("text/plain;q=0, */*", false),
            ("text/plain;q=much", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(prefers_plain(&headers), plain, "{accept}");
        }
        assert!(!prefers_plain(&HeaderMap::new()));
    }
}
