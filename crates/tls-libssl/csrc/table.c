/* The only visible symbol: TL_TABLE is its name, tautline_libssl_<library>. */
#include "shim.h"

static const char *version(void)
{
    return OpenSSL_version(OPENSSL_VERSION);
}

static void session_free(SSL_SESSION *session)
{
    SSL_SESSION_free(session);
}

static void bytes_free(uint8_t *bytes)
{
    OPENSSL_free(bytes);
}

const tl_table TL_TABLE = {
    .size = sizeof(tl_table),
    .init = tl_init,
    .version = version,
    .identity_new = tl_identity_new,
    .identity_free = tl_identity_free,
    .identity_kind = tl_identity_kind,
    .identity_bits = tl_identity_bits,
    .identity_names = tl_identity_names,
    .identity_validity = tl_identity_validity,
    .identity_linked = tl_identity_linked,
    .identity_fits = tl_identity_fits,
    .identity_sign = tl_identity_sign,
    .random = tl_random,
    .context_new = tl_context_new,
    .context_free = tl_context_free,
    .context_trust_pem = tl_context_trust_pem,
    .context_trust_der = tl_context_trust_der,
    .context_use = tl_context_use,
    .context_names = tl_context_names,
    .context_seal = tl_context_seal,
    .conn_accept = tl_conn_accept,
    .conn_connect = tl_conn_connect,
    .conn_free = tl_conn_free,
    .conn_handshake = tl_conn_handshake,
    .conn_read = tl_conn_read,
    .conn_write = tl_conn_write,
    .conn_close = tl_conn_close,
    .conn_spill = tl_conn_spill,
    .conn_update_keys = tl_conn_update_keys,
    .conn_info = tl_conn_info,
    .conn_peer_certificate = tl_conn_peer_certificate,
    .conn_refused_names = tl_conn_refused_names,
    .conn_refused_validity = tl_conn_refused_validity,
    .conn_keep_session = tl_conn_keep_session,
    .conn_session = tl_conn_session,
    .conn_faults = tl_conn_faults,
    .session_free = session_free,
    .bytes_free = bytes_free,
#ifndef TL_WOLFSSL
    /* wolfSSL holds nothing back, exports no secrets, has no BIO to measure, and is built without OCSP. */
    .conn_flush = tl_conn_flush,
    .conn_secrets = tl_conn_secrets,
    .conn_memory = tl_conn_memory,
    .identity_staple = tl_identity_staple,
#endif
};
