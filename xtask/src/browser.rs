//! The pages that `taut` makes, in a real browser.

mod chromium;
mod fixture;

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::outcome::{Failure, Outcome};
use crate::process::run_logged;
use crate::stage::Context;
use crate::{paths, taut};
use chromium::Browser;

/// Makes a report from stored results, and uses it as a reader would.
pub(crate) fn test(context: &Context) -> Outcome {
    let Some(program) = chromium::program() else {
        return Err(Failure::Skipped("Chromium is not installed: on Debian, apt-get install chromium".to_owned()));
    };
    let folder = chromium::folder()?;
    let (results, page) = (folder.join("results.jsonl"), folder.join("report.html"));
    fs::write(&results, fixture::results())?;
    let mut report = Command::new(taut::program());
    report.args(["bench", "report"]).arg(&results).arg("--output").arg(&page);
    run_logged(&mut report, &paths::log("bench-report"), context.deadline)?;
    let url = format!("file://{}", page.display());
    let mut browser = Browser::start(program, &folder)?;
    browser.show(1360, "light")?;
    browser.open(&url)?;
    loads_alone_and_without_errors(&mut browser, &url)?;
    is_accessible(&mut browser)?;
    sorts(&mut browser)?;
    filters(&mut browser)?;
    switches_between_light_and_dark(&mut browser, &folder)?;
    fits_a_phone(&mut browser, &url, &folder)?;
    prints(&mut browser)?;
    loads_alone_and_without_errors(&mut browser, &url)?;
    println!("pictures: {}", folder.display());
    Ok(())
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(Failure::Failed(what())) }
}

/// Checks that an expression has this value in the page.
fn expect(browser: &mut Browser, expression: &str, expected: &Value) -> Outcome {
    let found = browser.value(expression)?;
    check(found == *expected, || format!("{expression} is {found} instead of {expected}"))
}

/// No request but for the page, no exception, nothing in the console, and no text of the results became a script.
fn loads_alone_and_without_errors(browser: &mut Browser, url: &str) -> Outcome {
    let requests = browser.events("Network.requestWillBeSent");
    let foreign = requests.iter().filter_map(|request| request["request"]["url"].as_str());
    let foreign: Vec<&str> = foreign.filter(|at| *at != url && !at.starts_with("data:")).collect();
    check(foreign.is_empty(), || format!("the page asked for {foreign:?}"))?;
    for event in ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"] {
        let found = browser.events(event);
        check(found.is_empty(), || format!("{event}: {found:?}"))?;
    }
    expect(browser, "typeof window.hacked", &json!("undefined"))?;
    expect(browser, "document.querySelectorAll('script').length", &json!(1))
}

/// Names, roles, a table behind each picture, one order of headings, and the keyboard.
fn is_accessible(browser: &mut Browser) -> Outcome {
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
    expect(browser, twice, &json!(0))?;
    for kind in ["keyDown", "keyUp"] {
        let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
        browser.call("Input.dispatchKeyEvent", &key)?;
    }
    expect(browser, "document.activeElement.className", &json!("skip"))?;
    expect(browser, "document.querySelectorAll('#published-table tbody tr').length", &json!(808))
}

/// A click on a title sorts by the exact values, and another one the other way; rows without a value stay last.
fn sorts(browser: &mut Browser) -> Outcome {
    let is_sorted = |sign: i32| {
        format!(
            "(() => {{ const all = [...document.querySelectorAll('#measured-table tbody tr')] \
             .map(row => row.cells[3].dataset.v).filter(v => v !== undefined).map(Number); \
             return all.length > 20 && all.every((v, at) => !at || {sign} * (v - all[at - 1]) >= 0); }})()"
        )
    };
    let title = "document.querySelectorAll('#measured-table thead th')[3]";
    expect(browser, &is_sorted(1), &json!(false))?;
    for (sign, order) in [(1, "ascending"), (-1, "descending")] {
        browser.value(&format!("{title}.querySelector('button').click()"))?;
        expect(browser, &format!("{title}.getAttribute('aria-sort')"), &json!(order))?;
        expect(browser, &is_sorted(sign), &json!(true))?;
    }
    let published = "document.querySelectorAll('#measured-table thead th')[8].querySelector('button').click()";
    browser.value(published)?;
    let last = "document.querySelector('#measured-table tbody').lastElementChild.cells[8].textContent";
    expect(browser, last, &json!(""))
}

/// Words, a suite and the mark of both figures narrow the rows, and a text tells how many are left.
fn filters(browser: &mut Browser) -> Outcome {
    let set = |change: &str| {
        format!(
            "(() => {{ const form = document.querySelector('form[data-table=measured-table]'); {change}; \
             form.dispatchEvent(new Event('input')); }})()"
        )
    };
    let shown = "[...document.querySelectorAll('#measured-table tbody tr')].filter(row => row.checkVisibility())";
    let told = "document.querySelector('form[data-table=measured-table] output').textContent";
    browser.value(&set("form.elements.text.value = 'INLINE connections=200'"))?;
    expect(browser, &format!("{shown}.length"), &json!(2))?;
    expect(browser, &format!("{told}.startsWith('2 of ')"), &json!(true))?;
    browser.value(&set("form.elements.text.value = ''; form.elements.suite.value = 'scaling'"))?;
    expect(browser, &format!("{shown}.every(row => row.dataset.suite === 'scaling')"), &json!(true))?;
    browser.value(&set("form.elements.suite.value = ''; form.elements.both.checked = true"))?;
    expect(browser, &format!("{shown}.length > 5 && {shown}.every(row => row.cells[8].textContent)"), &json!(true))?;
    browser.value(&set("form.reset()"))?;
    expect(browser, &format!("{told}.includes(' of ')"), &json!(false))
}

/// The system's choice counts until the reader switches.
fn switches_between_light_and_dark(browser: &mut Browser, folder: &Path) -> Outcome {
    let paper = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(paper)?;
    keep(browser, &folder.join("light.png"))?;
    browser.show(1360, "dark")?;
    let dark = browser.value(paper)?;
    check(light != dark, || format!("light and dark are both {light}"))?;
    keep(browser, &folder.join("dark.png"))?;
    browser.value("document.getElementById('theme').click()")?;
    expect(browser, paper, &light)?;
    browser.value("document.getElementById('theme').click()")?;
    expect(browser, paper, &dark)?;
    browser
        .value("(() => { delete document.documentElement.dataset.theme; try { localStorage.clear(); } catch {} })()")
        .map(drop)
}

/// Nothing is wider than a window of 360 points, except within elements that scroll themselves.
fn fits_a_phone(browser: &mut Browser, url: &str, folder: &Path) -> Outcome {
    browser.show(360, "light")?;
    browser.open(url)?;
    expect(browser, "document.documentElement.scrollWidth <= 360", &json!(true))?;
    let small = "[...document.querySelectorAll('svg text')].filter(text => \
                 text.getBoundingClientRect().height > 0 && text.getBoundingClientRect().height < 9).length";
    expect(browser, small, &json!(0))?;
    keep(browser, &folder.join("narrow.png"))?;
    browser.show(1360, "light")
}

fn prints(browser: &mut Browser) -> Outcome {
    let printed = browser.call("Page.printToPDF", &json!({"printBackground": false}))?;
    let data = BASE64_STANDARD.decode(printed["data"].as_str().unwrap_or_default());
    let data = data.map_err(|error| Failure::Failed(format!("the printed page is no base64: {error}")))?;
    check(data.starts_with(b"%PDF-") && data.len() > 50_000, || format!("printed: {} bytes", data.len()))
}

fn keep(browser: &mut Browser, path: &Path) -> Outcome {
    let data = BASE64_STANDARD.decode(browser.picture()?);
    let data = data.map_err(|error| Failure::Failed(format!("the picture is no base64: {error}")))?;
    Ok(fs::write(path, data)?)
}
