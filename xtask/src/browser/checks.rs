//! Checks of any page.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::chromium::Browser;
use crate::outcome::{Failure, Outcome};

/// Fails with what was found, unless it holds.
pub(super) fn check(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::Failed(what())) }
}

/// Checks that an expression has this value in the page.
pub(super) fn expect(browser: &mut Browser, expression: &str, expected: &Value) -> Outcome {
    let found = browser.value(expression)?;
    check(found == *expected, || format!("{expression} is {found} instead of {expected}"))
}

/// No request but for the page, no exception, nothing in the console.
pub(super) fn is_quiet(browser: &mut Browser, url: &str) -> Outcome {
    let requests = browser.events("Network.requestWillBeSent");
    let foreign = requests.iter().filter_map(|request| request["request"]["url"].as_str());
    let foreign: Vec<&str> = foreign.filter(|at| *at != url && !at.starts_with("data:")).collect();
    check(foreign.is_empty(), || format!("the page asked for {foreign:?}"))?;
    tells_nothing(browser)
}

/// No exception since the last look, and nothing in the console.
pub(super) fn tells_nothing(browser: &mut Browser) -> Outcome {
    for event in ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"] {
        let found = browser.events(event);
        check(found.is_empty(), || format!("{event}: {found:?}"))?;
    }
    Ok(())
}

/// Names, roles, a table behind each picture, and one order of headings.
pub(super) fn has_names(browser: &mut Browser) -> Outcome {
    for selector in [
        "svg:not([role=img])",
        "svg:not([aria-label])",
        "figure:not(:has(figcaption))",
        "figure:not(:has(table))",
        "table:not(:has(caption))",
        "th:not([scope])",
        "[role=region]:not([tabindex='0'])",
        "html:not([lang])",
    ] {
        expect(browser, &format!("document.querySelectorAll(\"{selector}\").length"), &json!(0))?;
    }
    let nameless = "[...document.querySelectorAll('button, a, summary, input, select')].filter(e => \
                    !(e.textContent.trim() || e.getAttribute('aria-label') || e.closest('label'))).length";
    expect(browser, nameless, &json!(0))?;
    let leaps = "[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(e => +e.tagName[1]) \
                 .filter((level, at, all) => at && level > all[at - 1] + 1).length";
    expect(browser, leaps, &json!(0))?;
    let twice = "(() => { const all = [...document.querySelectorAll('[id]')].map(e => e.id); \
                 return all.length - new Set(all).size; })()";
    expect(browser, twice, &json!(0))
}

/// The window of 360 points is wide enough, and no text is too small to read.
pub(super) fn fits(browser: &mut Browser) -> Outcome {
    expect(browser, "document.documentElement.scrollWidth <= 360", &json!(true))?;
    let small = "[...document.querySelectorAll('svg text')].filter(text => \
                 text.getBoundingClientRect().height > 0 && text.getBoundingClientRect().height < 9).length";
    expect(browser, small, &json!(0))
}

/// Keeps a picture of the page.
pub(super) fn keep(browser: &mut Browser, path: &Path) -> Outcome {
    let data = BASE64_STANDARD.decode(browser.picture()?);
    let data = data.map_err(|error| Failure::Failed(format!("the picture is no base64: {error}")))?;
    Ok(fs::write(path, data)?)
}
