//! Errors of the parser in words of a configuration, each with its remedy.

use super::file::{A_SIZE, A_TIME};
use super::nearest::nearest;
use std::ops::Range;

/// The keys of the top level.
const TOP: [&str; 14] = [
    "listen",
    "certificates",
    "acme",
    "client",
    "limits",
    "client-ca",
    "client-certificate",
    "plain",
    "http2",
    "pages",
    "request-id",
    "traceparent",
    "route",
    "backend",
];

/// The place of an error in the text, and the error with its remedy.
pub(super) fn of(error: &toml::de::Error, text: &str) -> (Option<Range<usize>>, String) {
    let message = error.message().trim();
    let Some(span) = error.span() else { return (None, with_remedy(message)) };
    match at_place(message, text, &span) {
        Some((at, what)) => (Some(at), what),
        None => (Some(span), with_remedy(message)),
    }
}

/// The remedy of an error that depends on its place.
fn at_place(message: &str, text: &str, span: &Range<usize>) -> Option<(Range<usize>, String)> {
    let found = text.get(span.clone())?;
    let begin = text.get(..span.start)?.rfind('\n').map_or(0, |end| end + 1);
    let before = text.get(begin..span.start)?.trim();
    if message == "duplicate key" {
        let line = text.get(begin..)?.lines().next()?;
        return Some(doubled(found, text, before.starts_with('[').then_some(line), span));
    }
    let what = message.strip_prefix("invalid type: ")?;
    if before.is_empty() && found.starts_with('[') {
        return Some((span.clone(), header(found)?));
    }
    let key = before.strip_suffix('=')?.trim_end().rsplit([' ', '\t', '{', ',']).next()?;
    (key == "host" && what == "sequence, expected a string").then(|| {
        let what = "host is the `Host` that the server gets, one text in quotes: write hosts = [\"…\"] for the hosts of the route";
        (span.clone(), what.to_owned())
    })
}

/// A key that is there twice. `header` is the line of a table's header, if it is in one.
fn doubled(key: &str, text: &str, header: Option<&str>, span: &Range<usize>) -> (Range<usize>, String) {
    let Some(header) = header else {
        return (span.clone(), format!("the key {:?} is there twice: leave one out", key.trim_matches(['"', '\''])));
    };
    let header = header.split('#').next().unwrap_or_default().trim();
    if key != "route" {
        return (span.clone(), format!("{header} is there twice: leave one out, or give it another name"));
    }
    // The error is at the second header, and the one to mend may be the first.
    let mut at = 0;
    let single = text.split_inclusive('\n').find_map(|line| {
        let begin = at;
        at += line.len();
        line.trim_start().starts_with("[route]").then_some(begin..begin)
    });
    (single.unwrap_or_else(|| span.clone()), "write [[route]], in double brackets, for each route".to_owned())
}

/// The header to write in place of that of another kind of table.
fn header(found: &str) -> Option<String> {
    if let Some(name) = found.strip_prefix("[[").and_then(|rest| rest.strip_suffix("]]")) {
        return Some(match name.trim() {
            "backend" => "write [backend.NAME], with a name of your choice, for each backend".to_owned(),
            name => format!("write [{name}], in single brackets: there is one"),
        });
    }
    let name = found.strip_prefix('[')?.strip_suffix(']')?.trim();
    matches!(name, "route" | "certificates").then(|| {
        let each = if name == "route" { "route" } else { "certificate" };
        format!("write [[{name}]], in double brackets, for each {each}")
    })
}

/// Says what to write in place of a value of another type, and names the nearest key, where serde lists those that it knows.
fn with_remedy(message: &str) -> String {
    match message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: ")) {
        Some(rest) => with_type(rest).unwrap_or_else(|| message.to_owned()),
        None => with_nearest(message),
    }
}

/// `string "many", expected usize` in words of a configuration.
fn with_type(rest: &str) -> Option<String> {
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let found = found.replace('`', "");
    if let Some(number) = found.strip_prefix("integer ").and_then(|number| number.parse::<u64>().ok())
        && let Some(text) = with_unit(number, expected)
    {
        return Some(format!("{number} has no unit: write it in quotes with one, as {text:?}"));
    }
    let wanted = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "a nonzero u32" | "a nonzero usize" => {
            "a number without quotes, from 0 on"
        }
        "i8" | "i16" | "i32" | "i64" | "isize" => "a number without quotes",
        "a boolean" => "true or false, without quotes",
        "a string" | "path string" => "a text in quotes",
        A_TIME => "a time in quotes, as \"30s\"",
        A_SIZE => "a size in quotes, as \"64KiB\"",
        "a sequence" => "a list in brackets",
        "a map" => "a table: { key = value }",
        expected => expected.strip_prefix("struct ").map_or(expected, |_| "a table: { key = value }"),
    };
    Some(format!("{found} does not fit here: write {wanted}"))
}

/// A number with the unit that it most likely has. `None` if the value is to be another one.
fn with_unit(number: u64, expected: &str) -> Option<String> {
    match expected {
        A_TIME => Some(format!("{number}s")),
        A_SIZE if number > 0 && number.is_multiple_of(1 << 20) => Some(format!("{}MiB", number >> 20)),
        A_SIZE if number > 0 && number.is_multiple_of(1 << 10) => Some(format!("{}KiB", number >> 10)),
        A_SIZE => Some(format!("{number}B")),
        _ => None,
    }
}

fn with_nearest(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant ")) else {
        return message.to_owned();
    };
    let mut names = rest.split('`').skip(1).step_by(2);
    let Some(unknown) = names.next() else { return message.to_owned() };
    let known: Vec<&str> = names.collect();
    let kind = if message.starts_with("unknown field") { "key" } else { "value" };
    if kind == "key" && TOP.contains(&unknown) {
        return format!("{unknown:?} belongs at the top of the file, before the first [table]");
    }
    match nearest(unknown, known.iter().copied()) {
        Some(nearest) => format!("there is no {kind} {unknown:?}: did you mean {nearest:?}?"),
        None => format!("there is no {kind} {unknown:?}: write one of {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::file::File;

    fn said(text: &str) -> (usize, String) {
        let (span, what) = of(&toml::from_str::<File>(text).unwrap_err(), text);
        (text[..span.unwrap().start].matches('\n').count() + 1, what)
    }

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        let (line, what) = said("[[route]]\nto = \"a\"\nto = \"b\"\n");
        assert_eq!((line, what.as_str()), (3, "the key \"to\" is there twice: leave one out"));
        let (line, what) = said("[backend.a]\nservers = []\n[backend.a] # again\nservers = []\n");
        assert_eq!((line, what.split(':').next().unwrap()), (3, "[backend.a] is there twice"));
        for (line, text) in [
            (2, "[[route]]\n[route]\n"),
            (1, "[route]\n[[route]]\n"),
            (1, "[route]\n[route]\n"),
            (1, "[route]\nto = \"a\"\n"),
        ] {
            assert_eq!(said(text), (line, "write [[route]], in double brackets, for each route".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_header_of_another_kind_of_table_names_the_right_one() {
        for (text, remedy) in [
            ("[[backend]]\nservers = []\n", "write [backend.NAME]"),
            ("[[backend.a]]\nservers = []\n", "write [backend.a]"),
            ("[[client]]\nidle-time = \"30s\"\n", "write [client]"),
            ("[certificates]\ncert = \"a\"\n", "write [[certificates]]"),
        ] {
            let (line, what) = said(text);
            assert!(line == 1 && what.starts_with(remedy), "{text}: {what}");
        }
    }

    #[test]
    fn a_list_of_hosts_under_host_names_hosts() {
        for text in ["[[route]]\nhost = [\"a\"]\n", "route = [\n{ to = \"a\", host = [\"a\"] }]\n"] {
            let (line, what) = said(text);
            assert!(line == 2 && what.contains("write hosts = ["), "{text}: {what}");
        }
        assert!(said("[[route]]\nname = [\"a\"]\n").1.contains("write a text in quotes"));
    }

    #[test]
    fn a_number_without_a_unit_gets_one() {
        for (text, remedy) in [
            ("[client]\nidle-time = 30\n", "30 has no unit: write it in quotes with one, as \"30s\""),
            ("[client]\nidle-time = true\n", "write a time in quotes, as \"30s\""),
            ("[backend.a]\nservers = []\nwait-time = 5\n", "\"5s\""),
            ("[[route]]\nmessages = { max-size = 1024 }\n", "\"1KiB\""),
            ("[[route]]\nmessages = { max-size = 2097152 }\n", "\"2MiB\""),
            ("[[route]]\nmessages = { queue = 1000 }\n", "\"1000B\""),
            ("[[route]]\nmessages = { queue = 1.5 }\n", "write a size in quotes, as \"64KiB\""),
        ] {
            let (_, what) = said(text);
            assert!(what.contains(remedy), "{text}: {what}");
        }
    }

    #[test]
    fn a_key_of_the_top_in_a_table_is_sent_there() {
        let what = "\"pages\" belongs at the top of the file, before the first [table]";
        for table in ["[[route]]", "[client]", "[backend.a]\nservers = []"] {
            assert_eq!(said(&format!("{table}\npages = {{ 502 = \"a\" }}\n")).1, what);
        }
        let listed = toml::from_str::<File>("unknown = 1").unwrap_err();
        let listed: Vec<&str> = listed.message().split('`').skip(3).step_by(2).collect();
        assert_eq!(listed, TOP);
    }

    #[test]
    fn messages_of_serde_get_the_nearest_name() {
        let said = with_nearest("unknown field `lisen`, expected one of `listen`, `route`");
        assert_eq!(said, "there is no key \"lisen\": did you mean \"listen\"?");
        let said = with_nearest("unknown field `x`, expected `listen` or `certificates`");
        assert!(said.ends_with("write one of listen, certificates"), "{said}");
        assert_eq!(with_remedy("missing field `to`"), "missing field `to`");
    }

    #[test]
    fn a_value_of_another_type_is_told_what_to_be() {
        for (said, told) in [
            ("invalid type: string \"many\", expected usize", "string \"many\" does not fit here: write a number"),
            ("invalid value: integer `-1`, expected u16", "integer -1 does not fit here: write a number"),
            ("invalid type: integer `1`, expected a boolean", "integer 1 does not fit here: write true or false"),
            ("invalid type: string \"a\", expected a sequence", "write a list in brackets"),
        ] {
            assert!(with_remedy(said).contains(told), "{}", with_remedy(said));
        }
    }
}
