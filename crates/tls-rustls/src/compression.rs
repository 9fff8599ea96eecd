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
    use super::{Zlib, deflate};
    use proptest::prelude::*;
    use rustls::compress::CertDecompressor;

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
