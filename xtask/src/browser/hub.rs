//! The JavaScript client of a hub, an `EventSource` and the example chat, in pages of `taut serve --app hub`.

use std::process::Command;

use serde_json::json;

use super::checks::{check, expect, fits, has_names, tells_nothing};
use super::chromium::Browser;
use super::live::wait_for;
use crate::outcome::{Failure, Outcome};
use crate::paths;
use crate::process::Running;
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

/// Reads server-sent events: of now, after a place, and of other topics than the WebSocket's. The head of the response comes
/// before its topics are subscribed to.
const EVENTS: &str = "(() => {
    const data = (got) => ({ data }) => got.push(JSON.parse(data).data);
    const [all, later, places] = [[], [], []];
    let subscribed = 0;
    window.source = new EventSource('/events?topic=log:e&topic=room');
    source.addEventListener('subscribed', () => { subscribed += 1; });
    source.onmessage = (event) => { data(all)(event); places.push(event.lastEventId); };
    source.addEventListener('late', ({ lastEventId }) => { window.isLate = !!lastEventId; });
    source.addEventListener('close', ({ data }) => { window.code = JSON.parse(data).code; });
    import('/tautline-hub.js').then(async ({ HubClient }) => {
        window.hub = new HubClient(location.href.replace(/^http/, 'ws'));
        while (subscribed < 2) await new Promise((resolve) => setTimeout(resolve, 10));
        for (const n of [1, 2, 3]) await hub.publish('log:e', n);
        while (all.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
        const place = encodeURIComponent(places[0]);
        new EventSource(`/events?topic=log:e&topic=room&last-event-id=${place}`).onmessage = data(later);
        await hub.publish('room', 'plain');
    });
    window.hasEvents = () => all.join() === '1,2,3,plain' && later.slice(0, 2).join() === '2,3';
    window.hasReturned = () => window.isLate && all.at(-1) === 'again';
})() && true";

/// The bugs that are reproduced in Node, too. The page has no file of them, so it gets their text.
const BUGS: &str = include_str!("../../../tests/hub/bugs.mjs");

/// Two people enter the chat: the page, and the same page in a frame.
const CHAT: &str = "(() => {
    const frame = document.createElement('iframe');
    frame.title = 'the other one';
    frame.src = location.href;
    const enter = (page, name) => {
        page.forms.enter.elements.name.value = name;
        page.forms.enter.requestSubmit();
    };
    frame.onload = () => {
        window.pages = [document, frame.contentDocument];
        ['ann', '<b>bob</b>'].forEach((name, at) => enter(pages[at], name));
    };
    const texts = (page, selector) => [...page.querySelectorAll(selector)].map((one) => one.textContent);
    const all = (holds) => !!window.pages && pages.every(holds);
    window.say = (at, text) => {
        pages[at].forms.say.elements.text.value = text;
        pages[at].forms.say.requestSubmit();
    };
    window.haveState = (state) => all((page) => texts(page, '#state')[0] === state);
    window.haveMembers = () => all((page) => texts(page, '#members')[0] === '<b>bob</b>, ann');
    window.haveMessages = (...wanted) => all((page) => texts(page, '#messages li').join('|') === wanted.join('|'));
    window.waiting = (at) => texts(pages[at], '.waits').length;
    document.body.append(frame);
})() && true";
const HOSTILE: &str = "<img src=x onerror=top.hacked=1>";

pub(super) fn test(browser: &mut Browser) -> Outcome {
    client_and_events(browser)?;
    chat(browser)
}

fn client_and_events(browser: &mut Browser) -> Outcome {
    let port = taut::free_port()?;
    let server = start(port, "browser-hub")?;
    browser.open(&format!("http://127.0.0.1:{port}/package.json"))?;
    browser.value(SCRIPT)?;
    wait_for(browser, "!!window.isDone && window.isDone()", "all messages of the hub")?;
    bugs(browser)?;
    browser.value(EVENTS)?;
    wait_for(browser, "window.hasEvents()", "all events of the hub")?;
    // The browser comes back by itself, with a place of a life of the hub that is over.
    drop(server);
    let _server = start(port, "browser-hub-again")?;
    wait_for(browser, "!!window.isLate", "the return of the EventSource")?;
    browser.value("hub.publish('log:e', 'again') && true")?;
    wait_for(browser, "window.hasReturned()", "events after the return")
}

/// All bugs of the client, without an exception that reaches the page.
fn bugs(browser: &mut Browser) -> Outcome {
    browser.events("Runtime.exceptionThrown");
    let text = serde_json::to_string(BUGS).map_err(|error| Failure::Failed(error.to_string()))?;
    browser.value(&format!(
        "(async () => {{
            const {{ HubClient, HubError }} = await import('/tautline-hub.js');
            const {{ bugs }} = await import(URL.createObjectURL(new Blob([{text}], {{ type: 'text/javascript' }})));
            const url = location.href.replace(/^http/, 'ws');
            window.bugs = await bugs({{ HubClient, HubError, WebSocket, url }}).catch((error) => `failed: ${{error.message}}`);
        }})() && true"
    ))?;
    wait_for(browser, "!!window.bugs", "the bugs of the client")?;
    expect(browser, "Array.isArray(window.bugs) ? 'all' : window.bugs", &json!("all"))?;
    let thrown = browser.events("Runtime.exceptionThrown");
    check(thrown.is_empty(), || format!("{thrown:?}"))
}

/// Names, presence, history and a hub that is killed, in the example page.
fn chat(browser: &mut Browser) -> Outcome {
    let port = taut::free_port()?;
    let server = start(port, "browser-chat")?;
    browser.show(360, "light")?;
    browser.open(&format!("http://127.0.0.1:{port}/chat/"))?;
    for event in ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"] {
        browser.events(event);
    }
    browser.value(CHAT)?;
    wait_for(browser, "!!window.haveMembers && haveState('connected') && haveMembers()", "both members")?;
    browser.value("say(0, 'hello')")?;
    wait_for(browser, "haveMessages('ann: hello')", "a message of the chat")?;
    browser.value(&format!("say(1, '{HOSTILE}')"))?;
    let both = format!("'ann: hello', '<b>bob</b>: {HOSTILE}'");
    wait_for(browser, &format!("haveMessages({both})"), "an answer in the chat")?;
    expect(browser, "typeof window.hacked", &json!("undefined"))?;
    has_names(browser)?;
    fits(browser)?;
    tells_nothing(browser)?;
    drop(server);
    wait_for(browser, "haveState('connecting again')", "the end of the hub")?;
    browser.value("say(0, 'still here')")?;
    expect(browser, "waiting(0)", &json!(1))?;
    let _server = start(port, "browser-chat-again")?;
    // The log is gone with its process. The message that waited comes once, and both are members again.
    let after = format!("haveMessages({both}, 'Some earlier messages are gone.', 'ann: still here')");
    wait_for(browser, &after, "the message that waited")?;
    wait_for(browser, "haveState('connected') && haveMembers()", "both members again")?;
    browser.show(1360, "light")
}

/// A hub with the client and the chat among its files.
fn start(port: u16, name: &str) -> Result<Running, Failure> {
    let mut serve = Command::new(taut::program());
    serve.args(["serve", "--plain", "--app", "hub", "--listen", &format!("127.0.0.1:{port}"), "--files"]);
    serve.arg(paths::root().join("bindings/js"));
    taut::start(&mut serve, port, name)
}
