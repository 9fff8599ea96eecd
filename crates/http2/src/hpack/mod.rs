//! Parts of field compression (RFC 7541).

pub(crate) mod huffman;
pub(crate) mod integer;
pub(crate) mod table;
