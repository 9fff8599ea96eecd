use tautline_tls::Capabilities;

/// Handshakes by rustls, our own records.
pub(crate) static FUSED: Capabilities = Capabilities::new("fused", "rustls, own records").with_own_records();

/// rustls.
pub(crate) static RUSTLS: Capabilities = Capabilities::new("rustls", "rustls on AWS-LC").with_session_memory(3_700);
