use crate::guard::guarded;
use rustls::NamedGroup;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{cipher_suite as suite, default_provider};
use std::sync::Arc;
use tautline_tls::KeyExchange;

/// aws-lc-rs with the cipher suites in our order.
///
/// AES-128 precedes AES-256, because it is up to a fifth faster and as good as unbreakable. Without AES instructions
/// ChaCha20 is first. A server follows this order, see [`ServerConfigs`](crate::server_configs::ServerConfigs).
pub(crate) fn provider(key_exchange: KeyExchange) -> Arc<CryptoProvider> {
    let aes = [
        suite::TLS13_AES_128_GCM_SHA256,
        suite::TLS13_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ];
    let chacha = [
        suite::TLS13_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    let (first, second): (&[_], &[_]) = if has_aes() { (&aes, &chacha) } else { (&chacha, &aes) };
    let cipher_suites = first.iter().chain(second).copied().map(guarded).collect();
    let mut provider = CryptoProvider { cipher_suites, ..default_provider() };
    if key_exchange == KeyExchange::Classical {
        provider.kx_groups.retain(|group| !is_hybrid(group.name()));
    }
    Arc::new(provider)
}

/// Whether a group has a post-quantum part.
const fn is_hybrid(group: NamedGroup) -> bool {
    matches!(
        group,
        NamedGroup::X25519MLKEM768
            | NamedGroup::secp256r1MLKEM768
            | NamedGroup::MLKEM512
            | NamedGroup::MLKEM768
            | NamedGroup::MLKEM1024
    )
}

/// Whether the processor has AES instructions.
fn has_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
