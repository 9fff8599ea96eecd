/// The strictness of the checks on certificates when a configuration is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// A certificate that peers will reject is only a warning, because the clock may be wrong.
    Start,
    /// Such a certificate is an error, because the server can keep the ones that it has.
    Reload,
}
