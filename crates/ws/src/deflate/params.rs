use super::DeflateConfig;
use crate::Role;
use crate::extension::{Extension, Param};

const NAME: &str = "permessage-deflate";
const SERVER_NO_CONTEXT: &str = "server_no_context_takeover";
const CLIENT_NO_CONTEXT: &str = "client_no_context_takeover";
const SERVER_WINDOW: &str = "server_max_window_bits";
const CLIENT_WINDOW: &str = "client_max_window_bits";

/// The negotiated parameters of permessage-deflate (RFC 7692, section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateParams {
    /// The server compresses each message by itself.
    pub server_no_context_takeover: bool,
    /// The client compresses each message by itself.
    pub client_no_context_takeover: bool,
    /// Base-2 logarithm of the server's window, 8 to 15.
    pub server_max_window_bits: u8,
    /// Base-2 logarithm of the client's window, 8 to 15.
    pub client_max_window_bits: u8,
}

impl DeflateParams {
    /// Whether the sender `role` has no context takeover, and the base-2 logarithm of its window.
    #[must_use]
    pub const fn sender(&self, role: Role) -> (bool, u8) {
        match role {
            Role::Server => (self.server_no_context_takeover, self.server_max_window_bits),
            Role::Client => (self.client_no_context_takeover, self.client_max_window_bits),
        }
    }

    /// Encodes the parameters as a byte: 1 `server_no_context_takeover`, 2 `client_no_context_takeover`, then three bits for
    /// each window, the server's first, as the number above 8.
    #[must_use]
    pub const fn encode(self) -> u8 {
        self.server_no_context_takeover as u8
            | (self.client_no_context_takeover as u8) << 1
            | (self.server_max_window_bits.saturating_sub(8) & 7) << 2
            | (self.client_max_window_bits.saturating_sub(8) & 7) << 5
    }

    /// Reads a byte that [`encode`](Self::encode) made. Every byte is valid.
    #[must_use]
    pub const fn decode(byte: u8) -> Self {
        Self {
            server_no_context_takeover: byte & 1 == 1,
            client_no_context_takeover: byte & 2 == 2,
            server_max_window_bits: 8 + (byte >> 2 & 7),
            client_max_window_bits: 8 + (byte >> 5),
        }
    }
}

/// An offer or an answer is not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declined;

/// The parameters of one offer or answer: each name at most once, each value in range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parsed {
    server_no_context: bool,
    client_no_context: bool,
    server_window: Option<u8>,
    /// `Some(None)` is the name without a value, which only an offer may have.
    client_window: Option<Option<u8>>,
}

/// Makes the client's offer.
pub(crate) fn offer(config: &DeflateConfig) -> Extension {
    let (server_window, client_window) = config.window_bits();
    let mut offer = Extension::new(NAME);
    if config.server_no_context_takeover {
        offer = offer.with(SERVER_NO_CONTEXT, None);
    }
    if config.client_no_context_takeover {
        offer = offer.with(CLIENT_NO_CONTEXT, None);
    }
    if server_window < 15 {
        offer = offer.with(SERVER_WINDOW, Some(&server_window.to_string()));
    }
    if client_window < 15 {
        offer.with(CLIENT_WINDOW, Some(&client_window.to_string()))
    } else {
        offer.with(CLIENT_WINDOW, None)
    }
}

/// Accepts the first of the client's offers that the server can meet (RFC 7692, section 5.1), and makes the answer.
pub(crate) fn answer(offers: &[Extension], config: &DeflateConfig) -> Option<(DeflateParams, Extension)> {
    offers.iter().filter(|offer| is_ours(offer)).find_map(|offer| accept(offer, config).ok())
}

fn accept(offer: &Extension, config: &DeflateConfig) -> Result<(DeflateParams, Extension), Declined> {
    let wish = parse(&offer.params)?;
    let (server_window, client_window) = config.window_bits();
    if wish.server_window == Some(8) {
        return Err(Declined);
    }
    let params = DeflateParams {
        server_no_context_takeover: wish.server_no_context || config.server_no_context_takeover,
        client_no_context_takeover: wish.client_no_context || config.client_no_context_takeover,
        server_max_window_bits: server_window.min(wish.server_window.unwrap_or(15)),
        // A client that does not offer the parameter uses the full window, even if the configuration has a smaller one.
        client_max_window_bits: wish.client_window.map_or(15, |max| client_window.min(max.unwrap_or(15))),
    };
    let mut answer = Extension::new(NAME);
    if params.server_no_context_takeover {
        answer = answer.with(SERVER_NO_CONTEXT, None);
    }
    if params.client_no_context_takeover {
        answer = answer.with(CLIENT_NO_CONTEXT, None);
    }
    if params.server_max_window_bits < 15 || wish.server_window.is_some() {
        answer = answer.with(SERVER_WINDOW, Some(&params.server_max_window_bits.to_string()));
    }
    if params.client_max_window_bits < 15 {
        answer = answer.with(CLIENT_WINDOW, Some(&params.client_max_window_bits.to_string()));
    }
    Ok((params, answer))
}

/// Checks the server's answer to the client's [`offer`] (RFC 7692, sections 5.1 and 7.1).
pub(crate) fn check(answer: &Extension, config: &DeflateConfig) -> Result<DeflateParams, Declined> {
    if !is_ours(answer) {
        return Err(Declined);
    }
    let (server_window, client_window) = config.window_bits();
    let got = parse(&answer.params)?;
    let client = match got.client_window {
        None => 15,
        Some(None) => return Err(Declined),
        Some(Some(bits)) => bits,
    };
    let too_wide = client_window < client && got.client_window.is_some();
    let unmet = (config.server_no_context_takeover && !got.server_no_context)
        || (server_window < 15 && got.server_window.is_none_or(|bits| bits > server_window));
    if too_wide || unmet {
        return Err(Declined);
    }
    Ok(DeflateParams {
        server_no_context_takeover: got.server_no_context,
        client_no_context_takeover: got.client_no_context || config.client_no_context_takeover,
        server_max_window_bits: got.server_window.unwrap_or(15),
        client_max_window_bits: client.min(client_window),
    })
}

fn is_ours(extension: &Extension) -> bool {
    extension.name.eq_ignore_ascii_case(NAME)
}

fn parse(params: &[Param]) -> Result<Parsed, Declined> {
    let mut parsed = Parsed::default();
    for param in params {
        let value = param.value.as_deref();
        match (param.name.as_str(), value) {
            (SERVER_NO_CONTEXT, None) if !parsed.server_no_context => parsed.server_no_context = true,
            (CLIENT_NO_CONTEXT, None) if !parsed.client_no_context => parsed.client_no_context = true,
            (SERVER_WINDOW, Some(bits)) if parsed.server_window.is_none() => {
                parsed.server_window = Some(window_bits(bits)?);
            }
            (CLIENT_WINDOW, bits) if parsed.client_window.is_none() => {
                parsed.client_window = Some(bits.map(window_bits).transpose()?);
            }
            _ => return Err(Declined),
        }
    }
    Ok(parsed)
}

/// Parses window bits: 8 to 15 in decimal, without leading zeros (RFC 7692, section 7.1.2).
fn window_bits(value: &str) -> Result<u8, Declined> {
    match value.as_bytes() {
        [digit @ b'8'..=b'9'] => Ok(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Ok(10 + digit - b'0'),
        _ => Err(Declined),
    }
}

#[cfg(test)]
mod tests;
