//! The JavaScript client of a hub and an `EventSource`, in a page of `taut serve --app hub`.

use std::process::Command;

use super::chromium::Browser;
use super::live::wait_for;
use crate::outcome::{Failure, Outcome};
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

/// Reads server-sent events: of now, after a place, and of other topics than the WebSocket's.
const EVENTS: &str = "(() => {
    const data = (got) => ({ data }) => got.push(JSON.parse(data).data);
    const [all, later, places] = [[], [], []];
    window.source = new EventSource('/events?topic=log:e&topic=room');
    source.onmessage = (event) => { data(all)(event); places.push(event.lastEventId); };
    source.addEventListener('late', ({ lastEventId }) => { window.isLate = !!lastEventId; });
    source.addEventListener('close', ({ data }) => { window.code = JSON.parse(data).code; });
    import('/tautline-hub.js').then(async ({ HubClient }) => {
        window.hub = new HubClient(location.href.replace(/^http/, 'ws'));
        while (source.readyState !== 1) await new Promise((resolve) => setTimeout(resolve, 10));
        for (const n of [1, 2, 3]) await hub.publish('log:e', n);
        while (all.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
        const place = encodeURIComponent(places[0]);
        new EventSource(`/events?topic=log:e&topic=room&last-event-id=${place}`).onmessage = data(later);
        await hub.publish('room', 'plain');
    });
    window.hasEvents = () => all.join() === '1,2,3,plain' && later.slice(0, 2).join() === '2,3';
    window.hasReturned = () => window.isLate && all.at(-1) === 'again';
})() && true";

pub(super) fn test(context: &Context, browser: &mut Browser) -> Outcome {
    let port = taut::free_port()?;
    let start = |name: &str| {
        let mut serve = Command::new(taut::program());
        serve.args(["serve", "--plain", "--app", "hub", "--listen", &format!("127.0.0.1:{port}"), "--files"]);
        serve.arg(paths::root().join("bindings/js"));
        let mut server = Running::start_logged(&mut serve, &paths::log(name))?;
        taut::wait_until_listening(port, &mut server, context.deadline)?;
        Ok::<Running, Failure>(server)
    };
    let server = start("browser-hub")?;
    browser.open(&format!("http://127.0.0.1:{port}/package.json"))?;
    browser.value(SCRIPT)?;
    wait_for(browser, "!!window.isDone && window.isDone()", "all messages of the hub")?;
    browser.value(EVENTS)?;
    wait_for(browser, "window.hasEvents()", "all events of the hub")?;
    // The browser comes back by itself, with a place of a life of the hub that is over.
    drop(server);
    let _server = start("browser-hub-again")?;
    wait_for(browser, "!!window.isLate", "the return of the EventSource")?;
    browser.value("hub.publish('log:e', 'again') && true")?;
    wait_for(browser, "window.hasReturned()", "events after the return")
}
