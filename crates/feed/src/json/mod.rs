//! A scanner of JSON for decoders that know which fields they want.
//!
//! A [`Scanner`] walks a message once, where it was received. The decoder asks for each value by its type and skips the others.
//! Nothing is copied, and nothing allocates: strings are slices of the message, and numbers become [`Fixed`](crate::number::Fixed)
//! or integers. Skipped values are checked too, so a message that passes [`Scanner::end`] is JSON as RFC 8259 has it.
//!
//! Two checks are the caller's. Strings are bytes until [`Text::as_str`] or [`Text::unescape`] has found them to be UTF-8, and a
//! field that comes twice is returned twice.
//!
//! ```
//! use tautline_feed::json::{JsonError, Scanner};
//! use tautline_feed::number::Fixed;
//!
//! fn best_bid(text: &[u8]) -> Result<Option<Fixed>, JsonError> {
//!     let (mut json, mut best) = (Scanner::new(text), None);
//!     json.begin_object()?;
//!     while let Some(key) = json.next_key()? {
//!         match key {
//!             b"bids" => {
//!                 json.begin_array()?;
//!                 while json.next_element()? {
//!                     let price = json.fixed()?;
//!                     best = best.or(Some(price));
//!                 }
//!             }
//!             _ => json.skip()?,
//!         }
//!     }
//!     json.end()?;
//!     Ok(best)
//! }
//!
//! let best = best_bid(br#"{"symbol": "BTCUSDT", "bids": ["67321.45", "67321.44"]}"#)?;
//! assert_eq!(best, Some(Fixed { mantissa: 6_732_145, exponent: -2 }));
//! # Ok::<(), JsonError>(())
//! ```

mod error;
mod scanner;
mod skip;
mod text;

pub use error::{Expected, JsonError};
pub use scanner::{Kind, Scanner};
pub use text::Text;

/// Objects and arrays that may lie within each other.
pub const MAX_DEPTH: u32 = 64;
