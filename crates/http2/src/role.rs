/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Accepts requests.
    Server,
    /// Makes requests.
    Client,
}
