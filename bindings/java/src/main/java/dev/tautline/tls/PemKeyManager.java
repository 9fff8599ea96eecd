package dev.tautline.tls;

import javax.net.ssl.KeyManager;

/** A key and its certificates in PEM, for the contexts of this provider alone. */
record PemKeyManager(KeyPem pem) implements KeyManager {}
