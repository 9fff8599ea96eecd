/// TLS or none, so that one type of socket does for both. The choice costs a virtual call per record.
pub(crate) type Session = Box<dyn tautline_tls::Session>;
