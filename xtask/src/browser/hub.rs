//! The JavaScript client of a hub, in a page of `taut serve --app hub`.

use std::process::Command;

use super::chromium::Browser;
use super::live::wait_for;
use crate::outcome::Outcome;
use crate::paths;
use crate::process::Running;
use crate::stage::Context;
use crate::taut;

/// Publishes and subscribes, returns after an offset, and meets another member.
const SCRIPT: &str = "(async () => {
    const { HubClient } = await import('/tautline-hub.js');
    const url = location.href.replace(/^http/, 'ws');
    const [one, two, three] = [new HubClient(url), new HubClient(url), new HubClient(url)];
    const got = [], again = [];
    let members = [];
    await new Promise((onSubscribed) => one.subscribe('log:a', ({ data }) => got.push(data), { onSubscribed }));
    const first = await one.publish('log:a', 1);
    for (const n of [2, 3, 4]) await two.publish('log:a', n);
    const { offset: after, epoch } = first;
    three.subscribe('log:a', ({ data }) => again.push(data), { after, epoch, onLate: () => again.push('late') });
    one.subscribe('room', () => {}, { as: 'one', onMembers: (all) => (members = [...all.values()]) });
    two.subscribe('room', () => {}, { as: 'two' });
    window.isDone = () => got.join() === '1,2,3,4' && again.join() === '2,3,4' && members.sort().join() === 'one,two';
})() && true";

pub(super) fn test(context: &Context, browser: &mut Browser) -> Outcome {
    let port = taut::free_port()?;
    let mut serve = Command::new(taut::program());
    serve.args(["serve", "--plain", "--app", "hub", "--listen", &format!("127.0.0.1:{port}"), "--files"]);
    serve.arg(paths::root().join("bindings/js"));
    let mut server = Running::start_logged(&mut serve, &paths::log("browser-hub"))?;
    taut::wait_until_listening(port, &mut server, context.deadline)?;
    browser.open(&format!("http://127.0.0.1:{port}/package.json"))?;
    browser.value(SCRIPT)?;
    wait_for(browser, "!!window.isDone && window.isDone()", "all messages of the hub")
}
