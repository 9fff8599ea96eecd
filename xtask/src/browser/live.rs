//! The live pages of `taut serve --dashboard` and `taut load --dashboard`.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::checks::{expect, fits, has_names, is_quiet, keep};
use super::chromium::Browser;
use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::Running;
use crate::stage::Context;
use crate::taut::{self, Scheme};

/// Longest wait for figures.
const PATIENCE: Duration = Duration::from_secs(30);

/// Loads a server, and looks at both pages meanwhile.
pub(super) fn test(context: &Context, browser: &mut Browser, folder: &Path) -> Outcome {
    let certificates = taut::certificates(context)?;
    let pages = [taut::free_port()?, taut::free_port()?];
    let option = |port: u16| format!("--dashboard=127.0.0.1:{port}");
    let server = taut::serve("dashboard", Scheme::Wss, &certificates, &["--stages", &option(pages[0])])?;
    let mut load = Command::new(taut::program());
    load.args(["load", &server.url(), "--ca"]).arg(&certificates.ca);
    load.args(["--duration", "120", "--connections", "5", "--rate", "500", &option(pages[1])]);
    let mut load = Running::start_logged(&mut load, &paths::log("dashboard-load"))?;
    for port in pages {
        taut::wait_until_listening(port, &mut load, context.deadline)?;
    }
    // The authority of the pages' certificate is one of this user, which the browser does not know.
    browser.trust_all()?;
    for (port, name, charts) in [
        (pages[0], "serve", &["Messages", "Connections", "Stages of a message, median", "Memory"][..]),
        (pages[1], "load", &["Messages", "Latency", "CPU"]),
    ] {
        let url = format!("https://127.0.0.1:{port}/");
        browser.show(1360, "light")?;
        browser.open(&url)?;
        for chart in charts {
            has_chart(browser, chart)?;
        }
        expect(browser, "document.getElementById('state').textContent", &json!("live"))?;
        expect(browser, "document.title.startsWith('taut ')", &json!(true))?;
        has_names(browser)?;
        keep(browser, &folder.join(format!("live-{name}.png")))?;
        browser.show(360, "dark")?;
        fits(browser)?;
        keep(browser, &folder.join(format!("live-{name}-narrow.png")))?;
        is_quiet(browser, &url)?;
    }
    load.terminate(PATIENCE)?;
    wait_for(browser, "document.getElementById('state').textContent.includes('trying again')", "the end of the run")
}

/// Waits until a chart has a line of at least two values, and a row with a number for each line.
fn has_chart(browser: &mut Browser, name: &str) -> Outcome {
    let figure = format!(
        "[...document.querySelectorAll('figure')].find(one => one.querySelector('figcaption').firstChild.data === {:?})",
        format!("{name} ")
    );
    let drawn = format!(
        "(figure => !!figure && [...figure.querySelectorAll('polyline')].every(line => line.points.length > 1) && \
         figure.querySelectorAll('polyline').length === figure.querySelectorAll('td').length && \
         [...figure.querySelectorAll('td')].every(cell => /^[0-9]/.test(cell.textContent)))({figure})"
    );
    wait_for(browser, &drawn, &format!("a chart of {name}"))
}

/// Waits until an expression is true.
pub(super) fn wait_for(browser: &mut Browser, expression: &str, what: &str) -> Outcome {
    let end = Instant::now() + PATIENCE;
    while browser.value(expression)? != json!(true) {
        if Instant::now() > end {
            return Err(Failure::Failed(format!("the page does not show {what}")));
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
