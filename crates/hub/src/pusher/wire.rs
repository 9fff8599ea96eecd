//! Messages of the Pusher protocol: one JSON object per text message, whose data is mostly a text with JSON.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::borrow::Cow;

/// Codes of errors, as the protocol's documentation has them.
pub(super) mod code {
    pub(crate) const NO_APP: u16 = 4001;
    pub(crate) const DISABLED: u16 = 4003;
    pub(crate) const QUOTA: u16 = 4004;
    pub(crate) const NO_PATH: u16 = 4005;
    pub(crate) const BAD_VERSION: u16 = 4006;
    pub(crate) const OTHER_VERSION: u16 = 4007;
    pub(crate) const NO_VERSION: u16 = 4008;
    pub(crate) const UNAUTHORIZED: u16 = 4009;
    pub(crate) const AGAIN: u16 = 4200;
    pub(crate) const TOO_OFTEN: u16 = 4301;
}

/// A message of a client.
#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow)]
    pub(super) event: Cow<'a, str>,
    #[serde(default, borrow)]
    pub(super) channel: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) data: Option<&'a RawValue>,
}

/// The data of a subscription.
#[derive(Deserialize)]
pub(super) struct Subscribe {
    pub(super) channel: String,
    #[serde(default)]
    pub(super) auth: Option<String>,
    #[serde(default)]
    pub(super) channel_data: Option<String>,
}

/// The data of a sign-in.
#[derive(Deserialize)]
pub(super) struct SignIn {
    pub(super) auth: String,
    pub(super) user_data: String,
}

/// The member that a subscription to a presence channel adds.
#[derive(Deserialize)]
pub(super) struct Member {
    user_id: Value,
    #[serde(default)]
    pub(super) user_info: Value,
}

impl Member {
    /// The user's identifier, which some servers write as a number.
    pub(super) fn user(&self) -> Option<String> {
        identifier(&self.user_id)
    }
}

/// An identifier: a text, or a number.
pub(super) fn identifier(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A message whose data is a text with JSON.
pub(super) fn told(event: &str, channel: Option<&str>, data: &Value) -> String {
    let mut message = json!({ "event": event, "data": data.to_string() });
    if let Some(channel) = channel {
        message["channel"] = channel.into();
    }
    message.to_string()
}

/// The number of a channel's subscribers.
pub(super) fn subscription_count(channel: &str, number: usize) -> String {
    told("pusher_internal:subscription_count", Some(channel), &json!({ "subscription_count": number }))
}

/// An event of a channel. `data` is a text.
pub(super) fn event(event: &str, channel: &str, data: &str, user: Option<&str>) -> String {
    let mut message = json!({ "event": event, "channel": channel, "data": data });
    if let Some(user) = user {
        message["user_id"] = user.into();
    }
    message.to_string()
}

/// An event of a client. `data` is JSON.
pub(super) fn client_event(event: &str, channel: &str, data: &str, user: Option<&str>) -> String {
    let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let user = user.map_or_else(String::new, |user| format!(",\"user_id\":{}", text(user)));
    format!("{{\"event\":{},\"channel\":{},\"data\":{data}{user}}}", text(event), text(channel))
}

/// An error of a connection.
pub(super) fn error(code: Option<u16>, message: &str) -> String {
    json!({ "event": "pusher:error", "data": { "code": code, "message": message } }).to_string()
}

/// The refusal of a subscription.
pub(super) fn refused(channel: &str, kind: &str, reason: &str, status: u16) -> String {
    let data = json!({ "type": kind, "error": reason, "status": status });
    json!({ "event": "pusher:subscription_error", "channel": channel, "data": data }).to_string()
}
