//! `taut hub`: an application's side of a hub, over its HTTP interface.

use crate::failure::Failure;
use crate::files;
use crate::http_tls;
use crate::output;
use crate::trust::Trust;
use clap::Subcommand;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;
use tautline::http::Uri;
use ureq::Agent;

/// The time that a request may take.
const TIME: Duration = Duration::from_secs(30);
/// Bytes of an answer, at most.
const LARGEST: u64 = 64 << 20;

/// Publish to a hub, read its history, and list and end connections of its users, with a key (docs/hub.md).
///
/// Prints the answer of the hub, in JSON.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  taut hub publish https://hub.example --key-file app.key log:orders '{\"price\":7}'
  taut hub publish https://hub.example --key-file app.key --user ann '\"hello\"'
  taut hub history https://hub.example --key-file app.key log:orders --after 41
  taut hub connections https://hub.example --key-file app.key ann
  taut hub disconnect https://hub.example --key-file app.key ann
  taut hub revoke https://hub.example --key-file app.key ann 3600")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    operation: Operation,
}

#[derive(Debug, Subcommand)]
enum Operation {
    /// Publish a message: a topic and its data, or with --user the data alone.
    #[command(after_help = "Example:\n  taut hub publish https://hub.example --key-file app.key log:orders 7")]
    Publish {
        #[command(flatten)]
        hub: HubArguments,
        /// Send it to all connections of this user instead of a topic.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// The message's key, in a conflating topic.
        #[arg(long, value_name = "KEY")]
        message_key: Option<String>,
        /// Have the hub do it once, however often it is repeated with this name.
        #[arg(long, value_name = "NAME")]
        idempotency_key: Option<String>,
        /// The topic, and the data: a JSON text.
        #[arg(required = true, num_args = 1..=2, value_name = "TOPIC> <DATA")]
        message: Vec<String>,
    },
    /// Print a page of a topic's history.
    #[command(after_help = "Example:\n  taut hub history https://hub.example --key-file app.key log:orders")]
    History {
        #[command(flatten)]
        hub: HubArguments,
        topic: String,
        /// The offset after which it begins. Default: the first message that is kept.
        #[arg(long, value_name = "OFFSET")]
        after: Option<u64>,
        /// The epoch of that offset. The hub refuses an offset of another one.
        #[arg(long, value_name = "EPOCH", requires = "after")]
        epoch: Option<String>,
    },
    /// List the users of one host, or the names of a user's connections to it.
    #[command(after_help = "Example:\n  taut hub connections https://hub.example --key-file app.key ann")]
    Connections {
        #[command(flatten)]
        hub: HubArguments,
        /// The user. Default: all users, with the number of their connections.
        user: Option<String>,
    },
    /// Close all connections of a user, or one connection, on all hosts. They may come again.
    #[command(after_help = "\
Examples:
  taut hub disconnect https://hub.example --key-file app.key ann
  taut hub disconnect https://hub.example --key-file app.key --connection 0f3c9a1be55d7720/0.12.3")]
    Disconnect {
        #[command(flatten)]
        hub: HubArguments,
        /// Close one connection instead, by its name in `taut hub connections`.
        #[arg(long)]
        connection: bool,
        /// The user, or with --connection the connection.
        name: String,
    },
    /// Close all connections of a user, and refuse the user's tokens for a time, on all hosts.
    #[command(after_help = "\
Examples:
  taut hub revoke https://hub.example --key-file app.key ann 3600
  taut hub revoke https://hub.example --key-file app.key --token 7f3a 3600")]
    Revoke {
        #[command(flatten)]
        hub: HubArguments,
        /// Refuse one token instead, by its claim `jti`.
        #[arg(long)]
        token: bool,
        /// The user, or with --token the token.
        name: String,
        /// Seconds for which tokens are refused; 0 takes it back.
        seconds: u64,
    },
}

/// The hub, and the key to it.
#[derive(Debug, clap::Args)]
struct HubArguments {
    /// The hub: https://HOST or http://HOST:PORT.
    url: Uri,
    /// File with a key of the hub's rules.
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    #[command(flatten)]
    trust: Trust,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (hub, name, body, repeat) = match &arguments.operation {
        Operation::Publish { hub, user, message_key, idempotency_key, message } => {
            let body = publication(user.as_deref(), message_key.as_deref(), message)?;
            (hub, "publish", body, idempotency_key.as_deref())
        }
        Operation::History { hub, topic, after, epoch } => {
            (hub, "history", page(topic, *after, epoch.as_deref()), None)
        }
        Operation::Connections { hub, user } => {
            let body = user.as_ref().map_or_else(|| json!({}), |user| json!({ "user": user }));
            (hub, "connections", body, None)
        }
        Operation::Disconnect { hub, connection, name } => {
            let kind = if *connection { "connection" } else { "user" };
            (hub, "disconnect", json!({ kind: name }), None)
        }
        Operation::Revoke { hub, token, name, seconds } => {
            let kind = if *token { "token" } else { "user" };
            (hub, "revoke", json!({ kind: name, "seconds": seconds }), None)
        }
    };
    hub.ask(name, &body, repeat)
}

/// The body of a publication.
fn publication(user: Option<&str>, key: Option<&str>, message: &[String]) -> Result<Value, Failure> {
    let (to, data) = match (user, message) {
        (None, [topic, data]) => (("topic", topic.as_str()), data),
        (Some(user), [data]) => (("user", user), data),
        _ => return Err(Failure::usage("give a topic and its data, or --user and the data")),
    };
    let data: Value = serde_json::from_str(data).map_err(|error| {
        Failure::usage(format!("the data is no JSON: {error}; a text needs its quotes: '\"text\"'"))
    })?;
    let mut body = json!({ "data": data, to.0: to.1 });
    if let Some(key) = key {
        body["key"] = key.into();
    }
    Ok(body)
}

/// The body of a request for a page of history. The hub takes no `null`.
fn page(topic: &str, after: Option<u64>, epoch: Option<&str>) -> Value {
    let mut body = json!({ "topic": topic });
    if let Some(after) = after {
        body["after"] = after.into();
    }
    if let Some(epoch) = epoch {
        body["epoch"] = epoch.into();
    }
    body
}

impl HubArguments {
    fn ask(&self, name: &str, body: &Value, repeat: Option<&str>) -> Result<(), Failure> {
        let host =
            self.url.host().ok_or_else(|| Failure::usage("write the hub as https://HOST or http://HOST:PORT"))?;
        let key = files::read(&self.key_file, "key of --key-file")?;
        let key = String::from_utf8_lossy(&key).trim().to_owned();
        let roots = self.trust.config(host)?.roots;
        let config = Agent::config_builder().timeout_global(Some(TIME)).tls_config(http_tls::config(&roots)?);
        let config = config.http_status_as_error(false).max_redirects(0);
        let agent = config.user_agent(concat!("taut/", env!("CARGO_PKG_VERSION"))).build().new_agent();
        let url = format!("{}/api/{name}", self.url.to_string().trim_end_matches('/'));
        let mut request = agent.post(&url).header("authorization", format!("Bearer {key}"));
        if let Some(repeat) = repeat {
            request = request.header("idempotency-key", repeat);
        }
        let failed = |error: ureq::Error| Failure::network(cannot_ask(&url, &error.to_string()));
        let mut answer = request.content_type("application/json").send(body.to_string()).map_err(failed)?;
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(LARGEST).read_to_string().map_err(failed)?;
        if status.is_success() {
            return output::print(text);
        }
        Err(Failure::failed(refusal(status.as_u16(), &text)))
    }
}

/// Why there is no answer, with the remedy for an authority that is not known.
fn cannot_ask(url: &str, error: &str) -> String {
    let remedy = if error.contains("UnknownIssuer") { "; pass the authority with --ca FILE" } else { "" };
    format!("cannot ask {url}: {error}{remedy}")
}

/// The reason and the remedy of an answer that is an error.
fn refusal(status: u16, text: &str) -> String {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let part = |name: &str| answer["error"][name].as_str().map(str::to_owned);
    match (part("reason"), part("remedy")) {
        (Some(reason), Some(remedy)) => format!("the hub refused it ({status}): {reason}; {remedy}"),
        _ => format!("the server answered with status {status}: is it a hub with a table [[key]] in its rules?"),
    }
}

#[cfg(test)]
mod tests {
    use super::{publication, refusal};
    use serde_json::json;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_message_goes_to_a_topic_or_a_user() {
        let body = publication(None, Some("k"), &texts(&["a", "{\"n\":1}"])).unwrap();
        assert_eq!(body, json!({ "topic": "a", "key": "k", "data": { "n": 1 } }));
        assert_eq!(publication(Some("ann"), None, &texts(&["1"])).unwrap(), json!({ "user": "ann", "data": 1 }));
        for (user, message) in [(None, &["1"][..]), (Some("ann"), &["a", "1"]), (None, &["a", "text"])] {
            assert!(publication(user, None, &texts(message)).is_err(), "{message:?}");
        }
    }

    #[test]
    fn a_refusal_has_the_remedy() {
        let text = r#"{"error":{"code":"c","reason":"no","remedy":"do"}}"#;
        assert_eq!(refusal(403, text), "the hub refused it (403): no; do");
        assert!(refusal(404, "not found").contains("[[key]]"));
    }
}
