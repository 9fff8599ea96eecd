/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that accepted the connection; it receives masked frames and sends unmasked ones.
    Server,
    /// The end that opened the connection; it sends masked frames and receives unmasked ones.
    Client,
}
