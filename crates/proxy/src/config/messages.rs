//! `messages` of a route: rules for WebSockets that end at the proxy.

use super::fault::Finder;
use super::file;
use crate::messages::{Messages, Rates, Settings, Slow};
use crate::plan::{Action, Forward, Plan, Route};
use crate::route::PathPattern;
use std::num::NonZeroU32;
use std::sync::Arc;
use tautline::SlowConsumer;
use toml::Spanned;

/// Bytes that wait for a slow client, if the configuration does not say.
const QUEUE: usize = 1 << 20;

/// Reads `messages`.
pub(super) fn settings(messages: file::Messages, finder: &mut Finder<'_>) -> Settings {
    let usual = Settings::default();
    let mut rate = |given: Option<Spanned<u32>>| {
        let given = given?;
        let how = "0 messages a second let none pass: write a number from 1 on, or leave the key out";
        finder.take(given.span(), NonZeroU32::new(*given.get_ref()).ok_or_else(|| how.to_owned()))
    };
    let rates = Rates {
        connection: rate(messages.rate),
        address: rate(messages.rate_by_address),
        route: rate(messages.rate_in_all),
    };
    if let Some(queue) = messages.queue.as_ref().filter(|_| messages.slow == file::Slow::Pause) {
        let how = "queue is for a slow client whose server is read on: add slow = \"disconnect\", \"drop-newest\" or \
                   \"drop-oldest\", or leave it out";
        finder.add(queue.span(), how);
    }
    let queue = messages.queue.map_or(QUEUE, |queue| queue.into_inner().0);
    let slow = match messages.slow {
        file::Slow::Pause => Slow::Pause,
        file::Slow::Disconnect => Slow::Policy(SlowConsumer::Disconnect(queue)),
        file::Slow::DropNewest => Slow::Policy(SlowConsumer::DropNewest(queue)),
        file::Slow::DropOldest => Slow::Policy(SlowConsumer::DropOldest(queue)),
    };
    let max_size = messages.max_size.map_or(usual.max_size, |file::Size(size)| size);
    Settings { max_size, rates, deflate: messages.deflate, slow }
}

/// The counters and rates that a route had before a reload, if its settings stay.
pub(super) fn messages_before(
    before: &Plan,
    plan: &Plan,
    (name, path): (&str, &PathPattern),
    messages: &Messages,
) -> Option<Arc<Messages>> {
    let of = |route: &Route| match &route.action {
        Action::Forward(Forward { messages: Some(messages), .. }) => Some(messages.clone()),
        _ => None,
    };
    let is_taken = |old: &Arc<Messages>| plan.routes.iter().filter_map(of).any(|new| Arc::ptr_eq(old, &new));
    let same = before.routes.iter().filter(|route| route.name == name && route.path == *path);
    same.filter_map(of).find(|old| old.settings == messages.settings && !is_taken(old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use std::path::Path;
    use std::time::Instant;

    fn plan(keys: &str, before: Option<&Plan>) -> Result<Plan, String> {
        let text = format!(
            "[[route]]\n{keys}\n[[route]]\nto = \"app\"\npath = \"/x\"\n[backend.app]\nservers = [\"http://a:1\"]\n"
        );
        parse(Path::new("t"), &text, before, Instant::now()).map_err(|faults| faults.to_string())
    }

    fn of(plan: &Plan) -> Option<Arc<Messages>> {
        match &plan.routes[0].action {
            Action::Forward(forward) => forward.messages.clone(),
            _ => None,
        }
    }

    fn settings(keys: &str) -> Settings {
        of(&plan(&format!("to = \"app\"\nmessages = {{ {keys} }}"), None).unwrap()).unwrap().settings.clone()
    }

    #[test]
    fn keys_become_settings() {
        assert!(of(&plan("to = \"app\"", None).unwrap()).is_none());
        assert_eq!(settings(""), Settings::default());
        let of = NonZeroU32::new;
        let rates = Rates { connection: of(5), address: of(50), route: of(500) };
        let slow = Slow::Policy(SlowConsumer::DropOldest(64 << 10));
        let expected = Settings { max_size: 2048, rates, deflate: true, slow };
        let keys = "max-size = \"2KiB\", rate = 5, rate-by-address = 50, rate-in-all = 500, deflate = true, \
                    slow = \"drop-oldest\", queue = \"64KiB\"";
        assert_eq!(settings(keys), expected);
        assert_eq!(settings("slow = \"disconnect\"").slow, Slow::Policy(SlowConsumer::Disconnect(1 << 20)));
        assert_eq!(settings("slow = \"drop-newest\"").slow, Slow::Policy(SlowConsumer::DropNewest(1 << 20)));
        assert_eq!(settings("slow = \"pause\""), Settings::default());
    }

    #[test]
    fn faults_have_their_line_and_remedy() {
        for (keys, said) in [
            ("to = \"app\"\nmessages = { rate = 0 }", "t:3: 0 messages a second let none pass"),
            ("to = \"app\"\nmessages = { rate-in-all = -1 }", "t:3: "),
            ("to = \"app\"\nmessages = { max-size = 5 }", "t:3: "),
            ("to = \"app\"\nmessages = { max-size = \"5\" }", "write a number with its unit"),
            ("to = \"app\"\nmessages = { max = \"5B\" }", "t:3: there is no key \"max\""),
            ("to = \"app\"\nmessages = { rates = 5 }", "did you mean \"rate\"?"),
            ("to = \"app\"\nmessages = { slow = \"drop\" }", "t:3: there is no value \"drop\""),
            (
                "to = \"app\"\nmessages = { queue = \"1MiB\" }",
                "t:3: queue is for a slow client whose server is read on",
            ),
            ("answer = { status = 404 }\nmessages = {}", "t:3: messages has no effect without `to`"),
        ] {
            let faults = plan(keys, None).unwrap_err();
            assert!(faults.contains(said), "{keys}: {faults}");
        }
    }

    #[test]
    fn a_reload_keeps_the_counters_of_a_route_whose_settings_stay() {
        let text = |name: &str, keys: &str| format!("name = \"{name}\"\nto = \"app\"\nmessages = {{ {keys} }}");
        let before = plan(&text("a", "rate = 5"), None).unwrap();
        let kept = |name: &str, keys: &str| {
            let after = plan(&text(name, keys), Some(&before)).unwrap();
            Arc::ptr_eq(&of(&before).unwrap(), &of(&after).unwrap())
        };
        assert!(kept("a", "rate = 5"));
        assert!(!kept("a", "rate = 6") && !kept("b", "rate = 5"));
    }
}
