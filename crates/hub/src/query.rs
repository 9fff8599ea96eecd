//! Parameters of a request's query.

/// The values of a parameter, decoded; `None` for one that is no text.
pub(crate) fn parameters(query: Option<&str>, name: &str) -> impl Iterator<Item = Option<String>> {
    let parts = query.unwrap_or_default().split('&');
    parts.filter_map(move |part| part.strip_prefix(name)?.strip_prefix('=').map(decode))
}

/// Undoes the encoding of a query.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok().filter(|digits| !digits.starts_with('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn queries_are_decoded_or_refused() {
        for (text, expected) in
            [("a%3Ab+c", Some("a:b c")), ("%C3%A4", Some("ä")), ("%", None), ("%4", None), ("%+4", None), ("%ff", None)]
        {
            assert_eq!(decode(text).as_deref(), expected, "{text}");
        }
    }
}
