/* The parts of wolfSSL that are built: TLS 1.2 and 1.3 and their dependencies, behind OpenSSL's interface for the shim. */
#ifndef TAUTLINE_USER_SETTINGS_H
#define TAUTLINE_USER_SETTINGS_H

/* TLS. */
#define WOLFSSL_TLS13
#define WOLFSSL_TLS13_MIDDLEBOX_COMPAT
#define NO_OLD_TLS
#define WOLFSSL_AEAD_ONLY
#define HAVE_TLS_EXTENSIONS
#define HAVE_SUPPORTED_CURVES
#define HAVE_EXTENDED_MASTER
#define HAVE_SERVER_RENEGOTIATION_INFO
#define HAVE_SNI
#define HAVE_ALPN
#define HAVE_SESSION_TICKET
#define WOLFSSL_TICKET_NONCE_MALLOC
#define HAVE_EXT_CACHE
#define HAVE_SECRET_CALLBACK
#define HAVE_EX_DATA
#define KEEP_PEER_CERT
#define SESSION_CERTS

/* The interface of OpenSSL. */
#define OPENSSL_EXTRA
#define OPENSSL_ALL
#define WOLFSSL_CERT_EXT
#define WOLFSSL_CERT_GEN
#define WOLFSSL_KEY_GEN
#define WOLFSSL_ALT_NAMES
#define WOLFSSL_IP_ALT_NAME
#define WOLFSSL_BASE64_ENCODE
#define WOLFSSL_DER_LOAD
#define WOLFSSL_ASN_TEMPLATE
#define WOLFSSL_HAVE_TLS_UNIQUE

/* Ciphers and hashes. */
#define HAVE_AESGCM
#define GCM_TABLE_4BIT
#define WOLFSSL_AES_DIRECT
#define HAVE_AES_CBC
#define HAVE_CHACHA
#define HAVE_POLY1305
#define HAVE_ONE_TIME_AUTH
#define HAVE_HKDF
#define WOLFSSL_SHA224
#define WOLFSSL_SHA384
#define WOLFSSL_SHA512
#define WOLFSSL_SHA3
#define WOLFSSL_SHAKE128
#define WOLFSSL_SHAKE256
#define HAVE_HASHDRBG

/* Public keys. */
#define HAVE_ECC
#define HAVE_ECC384
#define HAVE_ECC521
#define HAVE_CURVE25519
#define HAVE_ED25519
#define WC_RSA_PSS
#define WC_RSA_BLINDING
#define ECC_TIMING_RESISTANT
#define TFM_TIMING_RESISTANT
#define WOLFSSL_HAVE_MLKEM
#define WOLFSSL_WC_MLKEM
#define WOLFSSL_PQC_HYBRIDS
#define WOLFSSL_TLS_NO_MLKEM_STANDALONE
#define WOLFSSL_MIN_RSA_BITS 2048
#define WOLFSSL_MIN_ECC_BITS 256

/* Single-precision arithmetic for these sizes, any-size arithmetic for the rest. */
#define WOLFSSL_SP_MATH_ALL
#define WOLFSSL_HAVE_SP_RSA
#define WOLFSSL_HAVE_SP_ECC
#define WOLFSSL_SP_384
#define WOLFSSL_SP_4096
#define SP_INT_BITS 8192
#if defined(__x86_64__)
#define HAVE___UINT128_T
#define WOLFSSL_X86_64_BUILD
#define WOLFSSL_SP_ASM
#define WOLFSSL_SP_X86_64_ASM
#define WOLFSSL_AESNI
#define USE_INTEL_SPEEDUP
#define USE_INTEL_CHACHA_SPEEDUP
#define USE_INTEL_POLY1305_SPEEDUP
#endif

/* Algorithms that are not secure any more. */
#define NO_DH
#define NO_DSA
#define NO_DES3
#define NO_MD4
#define NO_RC4

#define WOLFSSL_IGNORE_FILE_WARN
#define NO_WOLFSSL_STUB

/* Each thread has its own queue of errors. */
#define HAVE_THREAD_LS
#define ERROR_QUEUE_PER_THREAD

#endif
