use pyo3::prelude::*;
use tautline::http::{HeaderMap, Request, Response};

/// The head of a request (`status` is 0) or of a response (`method` and `path` are empty).
#[pyclass(frozen, get_all, module = "tautline._native")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    method: String,
    path: String,
    status: u16,
    reason: String,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn of_request(request: &Request<()>) -> Self {
        Self {
            method: request.method().to_string(),
            path: request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            headers: pairs(request.headers()),
            ..Self::default()
        }
    }

    pub(crate) fn of_response<T>(response: &Response<T>) -> Self {
        Self {
            status: response.status().as_u16(),
            reason: response.status().canonical_reason().unwrap_or("").to_owned(),
            headers: pairs(response.headers()),
            ..Self::default()
        }
    }
}

/// Names with capital letters at the usual places, and values as ISO-8859-1.
fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let latin1 = |bytes: &[u8]| bytes.iter().map(|&byte| char::from(byte)).collect();
    headers.iter().map(|(name, value)| (title(name.as_str()), latin1(value.as_bytes()))).collect()
}

fn title(name: &str) -> String {
    let mut begins = true;
    let letter = |c: char| {
        let c = if begins { c.to_ascii_uppercase() } else { c };
        begins = c == '-';
        c
    };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_headers_have_their_usual_capitals() {
        assert_eq!(super::title("sec-websocket-key"), "Sec-Websocket-Key");
    }
}
