//! The pages that `taut` makes, in a real browser.

mod checks;
mod chromium;
mod fixture;
mod http2;
mod hub;
mod live;
mod proxied;

use std::fs;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::outcome::{Failure, Outcome};
use crate::process::run_logged;
use crate::stage::Context;
use crate::{paths, taut};
use checks::{check, expect, fits, has_names, is_quiet, keep};
use chromium::Browser;

/// Makes a report from stored results, and uses it as a reader would. Then looks at the live pages.
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
    live::test(context, &mut browser, &folder)?;
    proxied::test(context, &mut browser)?;
    http2::test(context, program, &folder)?;
    hub::test(&mut browser)?;
    println!("pictures: {}", folder.display());
    Ok(())
}

/// No request but for the page, no exception, nothing in the console, and no text of the results became a script.
fn loads_alone_and_without_errors(browser: &mut Browser, url: &str) -> Outcome {
    is_quiet(browser, url)?;
    expect(browser, "typeof window.hacked", &json!("undefined"))?;
    expect(browser, "document.querySelectorAll('script').length", &json!(1))
}

/// Names, roles, a table behind each picture, one order of headings, and the keyboard.
fn is_accessible(browser: &mut Browser) -> Outcome {
    has_names(browser)?;
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
    fits(browser)?;
    keep(browser, &folder.join("narrow.png"))?;
    browser.show(1360, "light")
}

fn prints(browser: &mut Browser) -> Outcome {
    let printed = browser.call("Page.printToPDF", &json!({"printBackground": false}))?;
    let data = BASE64_STANDARD.decode(printed["data"].as_str().unwrap_or_default());
    let data = data.map_err(|error| Failure::Failed(format!("the printed page is no base64: {error}")))?;
    check(data.starts_with(b"%PDF-") && data.len() > 50_000, || format!("printed: {} bytes", data.len()))
}
