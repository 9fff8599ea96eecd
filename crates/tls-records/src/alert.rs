//! Alerts (RFC 8446, section 6).

pub(crate) use tautline_tls::alert::name;

pub(crate) const CLOSE_NOTIFY: u8 = 0;
pub(crate) const UNEXPECTED_MESSAGE: u8 = 10;
pub(crate) const BAD_RECORD_MAC: u8 = 20;
pub(crate) const RECORD_OVERFLOW: u8 = 22;
/// illegal_parameter
pub const ILLEGAL_PARAMETER: u8 = 47;
/// decode_error
pub const DECODE_ERROR: u8 = 50;
pub(crate) const INTERNAL_ERROR: u8 = 80;
pub(crate) const USER_CANCELED: u8 = 90;

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names_every_alert_that_rustls_knows() {
        assert_eq!(name(48), "unknown_ca");
        assert_eq!(name(200), "number 200");
        for code in 0..=u8::MAX {
            let known = !format!("{:?}", rustls::AlertDescription::from(code)).contains('(');
            assert_eq!(known, !name(code).starts_with("number"), "{code}");
        }
    }
}
