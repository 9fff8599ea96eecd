//! The Pusher Channels protocol 7, so that its client and server libraries work with a hub as they are.
//!
//! An app of the rules has channels, and a channel is a plain topic of the hub: the app's prefix and the channel's name. Messages
//! reach this protocol's subscribers in frames of their own, so [`channels`] passes them to loops and hosts beside the topic.
//! [`connection`] is a loop's part, [`room`] the members of presence channels, and [`interface`] what server libraries call.

pub(crate) mod app;
mod auth;
pub(crate) mod channels;
mod connection;
pub(crate) mod delivery;
mod interface;
mod name;
mod room;
mod signature;
mod telling;
mod wire;

pub(crate) use self::connection::{Around, ENDED, Pushers, admit, app_key};
pub(crate) use self::interface::PATH;
pub(crate) use self::name::{MOST_INFO, OWN};
pub(crate) use self::signature::Secret;
