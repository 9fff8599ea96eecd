//! Signatures and members that clients bring from their application.

use super::app::App;
use super::name::{MOST_INFO, fits_user};
use super::wire::{Member, Subscribe};
use std::borrow::Cow;
use std::sync::Arc;

/// The reason why a subscription is refused: its type, text and status.
pub(super) type Refused = (&'static str, Cow<'static, str>, u16);

/// Whether `auth` is `KEY:SIGNATURE` of a text.
pub(super) fn is_signed(app: &App, text: &str, auth: &str) -> bool {
    auth.split_once(':').is_some_and(|(key, signature)| key == app.key && app.secret.verifies(text, signature))
}

/// Checks the signature of a subscription to a channel that is not public.
pub(super) fn check_auth((app, socket): (&App, &str), subscribe: &Subscribe) -> Result<(), Refused> {
    let Subscribe { channel, auth, channel_data } = subscribe;
    let mut text = format!("{}:{channel}", socket);
    if let Some(data) = channel_data {
        text = format!("{text}:{data}");
    }
    let is_good = auth.as_deref().is_some_and(|auth| is_signed(app, &text, auth));
    if is_good {
        Ok(())
    } else {
        Err(("AuthError", "the signature is not that of the app's secret for this socket".into(), 401))
    }
}

/// The user that a subscription to a presence channel names, and the user's information as JSON.
pub(super) fn member_of(subscribe: &Subscribe) -> Result<(Arc<str>, String), Refused> {
    let reason = "channel_data has no user_id of 1 to 128 bytes, or a user_info of more than 1 KiB";
    let wrong = || ("AuthError", reason.into(), 400);
    let data = subscribe.channel_data.as_deref().and_then(|data| serde_json::from_str::<Member>(data).ok());
    let data = data.ok_or_else(wrong)?;
    let user = data.user().filter(|user| fits_user(user)).ok_or_else(wrong)?;
    // Written anew, it has no control characters.
    let info = data.user_info.to_string();
    if info.len() > MOST_INFO { Err(wrong()) } else { Ok((user.into(), info)) }
}
