//! Compressed certificates (RFC 8879), by zlib, which clients of all kinds know.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use rustls::CertificateCompressionAlgorithm;
use rustls::compress::{
    CertCompressor, CertDecompressor, CompressionCache, CompressionFailed, CompressionLevel, DecompressionFailed,
};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use std::sync::Arc;

/// Least bytes that a server's chain must shrink by. A client pays for less with more time than the bytes take on their way.
const LEAST_SAVED: usize = 512;

/// Sets whether a server compresses its certificates. It does so if each of its chains shrinks enough, and for clients that ask.
///
/// A chain is compressed when the first client asks, and once more with each OCSP response. Clients' certificates are taken as
/// they are.
pub(crate) fn compress<'c>(
    config: &mut ServerConfig,
    is_wanted: bool,
    mut chains: impl ExactSizeIterator<Item = &'c [CertificateDer<'static>]>,
) {
    config.cert_compression_cache = Arc::new(CompressionCache::new(2 * chains.len()));
    let pays = is_wanted && chains.all(|chain| saved(chain) >= LEAST_SAVED);
    config.cert_compressors = if pays { vec![&Zlib] } else { Vec::new() };
    config.cert_decompressors = Vec::new();
}

/// Sets whether a client takes compressed certificates. One has at most 64 KiB without compression, which rustls checks first.
pub(crate) fn decompress(config: &mut ClientConfig, is_wanted: bool) {
    config.cert_decompressors = if is_wanted { vec![&Zlib] } else { Vec::new() };
    config.cert_compressors = Vec::new();
}

/// The bytes by which a chain shrinks.
fn saved(chain: &[CertificateDer<'_>]) -> usize {
    let plain: Vec<u8> = chain.iter().flat_map(|certificate| certificate.as_ref()).copied().collect();
    deflate(&plain).map_or(0, |compressed| plain.len() - compressed.len())
}

/// The algorithm of RFC 1950.
#[derive(Debug)]
struct Zlib;

impl CertCompressor for Zlib {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        deflate(&input).ok_or(CompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}

impl CertDecompressor for Zlib {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        let mut inflate = Decompress::new(true);
        let status = inflate.decompress(input, output, FlushDecompress::Finish);
        let is_whole = inflate.total_in() == input.len() as u64 && inflate.total_out() == output.len() as u64;
        if matches!(status, Ok(Status::StreamEnd)) && is_whole { Ok(()) } else { Err(DecompressionFailed) }
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}

/// Compresses `plain`; `None` if it does not shrink.
fn deflate(plain: &[u8]) -> Option<Vec<u8>> {
    let mut compressed = Vec::with_capacity(plain.len());
    let status = Compress::new(Compression::best(), true).compress_vec(plain, &mut compressed, FlushCompress::Finish);
    matches!(status, Ok(Status::StreamEnd)).then_some(compressed)
}

#[cfg(test)]
mod tests {
    use super::{Zlib, compress, decompress, deflate};
    use crate::provider::provider;
    use proptest::prelude::*;
    use rustls::client::Resumption;
    use rustls::compress::{CertCompressor, CertDecompressor, CompressionFailed, CompressionLevel};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{CertificateCompressionAlgorithm, ClientConfig, RootCertStore, ServerConfig};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tautline_testkit::certificate::{Authority, Leaf};
    use tautline_tls::KeyExchange;

    /// Counts how often chains are compressed.
    #[derive(Debug)]
    struct Counting(AtomicUsize);

    impl CertCompressor for Counting {
        fn compress(&self, input: Vec<u8>, level: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Zlib.compress(input, level)
        }

        fn algorithm(&self) -> CertificateCompressionAlgorithm {
            CertCompressor::algorithm(&Zlib)
        }
    }

    fn handshake(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) {
        let mut client = rustls::ClientConnection::new(client.clone(), "localhost".try_into().unwrap()).unwrap();
        let mut server = rustls::ServerConnection::new(server.clone()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut there).unwrap();
            }
            let mut there = &there[..];
            while !there.is_empty() {
                server.read_tls(&mut there).unwrap();
                server.process_new_packets().unwrap();
            }
            while server.wants_write() {
                server.write_tls(&mut back).unwrap();
            }
            let mut back = &back[..];
            while !back.is_empty() {
                client.read_tls(&mut back).unwrap();
                client.process_new_packets().unwrap();
            }
        }
    }

    #[test]
    fn a_chain_is_compressed_once_for_all_clients() {
        static COUNTING: Counting = Counting(AtomicUsize::new(0));
        let authority = Authority::new("Test").unwrap();
        let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate.chain).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(&certificate.key).unwrap();
        let provider = provider(KeyExchange::All);
        let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let mut server = server.unwrap().with_no_client_auth().with_single_cert(chain.clone(), key).unwrap();
        compress(&mut server, true, [&chain[..]].into_iter());
        server.cert_compressors = vec![&COUNTING];
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        client.resumption = Resumption::disabled();
        decompress(&mut client, true);
        let (client, server) = (Arc::new(client), Arc::new(server));
        (0..10).for_each(|_| handshake(&client, &server));
        assert_eq!(COUNTING.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_chain_that_does_not_shrink_is_not_compressed() {
        let mut random = [0; 500];
        aws_lc_rs::rand::fill(&mut random).unwrap();
        assert!(deflate(&random).is_none());
        assert!(deflate(&[]).is_none());
    }

    #[test]
    fn only_the_declared_length_is_decompressed() {
        let plain = vec![7; 60_000];
        let compressed = deflate(&plain).unwrap();
        assert!(compressed.len() < 200);
        let mut whole = vec![0; plain.len()];
        Zlib.decompress(&compressed, &mut whole).unwrap();
        assert_eq!(whole, plain);
        assert!(Zlib.decompress(&compressed, &mut whole[1..]).is_err(), "more than was declared");
        assert!(Zlib.decompress(&compressed, &mut [&whole[..], &[0]].concat()).is_err(), "less than was declared");
        assert!(Zlib.decompress(&compressed[..compressed.len() - 1], &mut whole).is_err(), "cut off");
        assert!(Zlib.decompress(&[&compressed[..], &[0]].concat(), &mut whole).is_err(), "bytes behind it");
        let raw = &compressed[2..];
        assert!(Zlib.decompress(raw, &mut whole).is_err(), "without the header of RFC 1950");
    }

    proptest! {
        #[test]
        fn what_is_compressed_comes_back(plain in prop::collection::vec(0..4_u8, 100..2_000)) {
            let compressed = deflate(&plain).unwrap();
            let mut whole = vec![0; plain.len()];
            prop_assert!(Zlib.decompress(&compressed, &mut whole).is_ok());
            prop_assert_eq!(whole, plain);
        }

        #[test]
        fn garbage_is_refused(garbage in prop::collection::vec(any::<u8>(), 0..200)) {
            // The checksum of 32 bits makes a hit unlikely.
            prop_assert!(Zlib.decompress(&garbage, &mut [0; 300]).is_err());
        }
    }
}
