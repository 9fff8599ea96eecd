//! A page of a backend in Node behind `taut proxy`, with WebSockets and an `EventSource`.

use serde_json::json;

use super::checks::expect;
use super::chromium::Browser;
use crate::interop;
use crate::interop::proxied::Proxied;
use crate::outcome::Outcome;
use crate::stage::Context;
use crate::taut;

/// Script that returns what the page sees by a route: a subprotocol, echoes, close codes, and two events.
const SCRIPT: &str = "async (way) => {
    const next = (target, name) => new Promise((resolve, reject) => {
        target.addEventListener(name, resolve, { once: true });
        target.addEventListener('error', () => reject(new Error(`no ${name}`)), { once: true });
    });
    const url = (path) => `wss://${location.host}/node/${way}/${path}`;
    const echo = new WebSocket(url('echo'), ['unknown.test', 'echo.test']);
    echo.binaryType = 'arraybuffer';
    await next(echo, 'open');
    const seen = [echo.protocol, echo.extensions !== ''];
    echo.send('Grüße');
    seen.push((await next(echo, 'message')).data);
    echo.send(new Uint8Array(70000).fill(7));
    seen.push(new Uint8Array((await next(echo, 'message')).data).filter((byte) => byte === 7).length);
    echo.close(4002, 'tired');
    seen.push((await next(echo, 'close')).code);
    const closed = new WebSocket(url('close'));
    await next(closed, 'open');
    closed.send('4001 bye');
    const { code, reason } = await next(closed, 'close');
    seen.push(code, reason);
    const source = new EventSource(`/node/${way}/events?name=browser-${way}`);
    seen.push((await next(source, 'message')).data);
    const second = next(source, 'message');
    await fetch(`/node/${way}/next?name=browser-${way}`);
    seen.push((await second).data);
    source.close();
    return seen;
}";

pub(super) fn test(context: &Context, browser: &mut Browser) -> Outcome {
    if context.unless_skipped("browser: proxied", interop::node_modules(context))?.is_none() {
        return Ok(());
    }
    let proxied = Proxied::in_node(&taut::certificates(context)?)?;
    // The authority of the certificate is one that the browser does not know.
    browser.trust_all()?;
    for (way, deflate) in [("t", true), ("m", false)] {
        browser.open(&format!("{}{way}/page", proxied.url()))?;
        let seen = json!(["echo.test", deflate, "Grüße", 70_000, 4002, 4001, "bye", "first", "second"]);
        expect(browser, &format!("({SCRIPT})('{way}')"), &seen)?;
    }
    Ok(())
}
