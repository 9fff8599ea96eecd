package dev.tautline.tls;

import java.nio.charset.StandardCharsets;
import java.security.KeyManagementException;
import java.security.PrivateKey;
import java.security.cert.CertificateEncodingException;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import javax.net.ssl.KeyManager;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509KeyManager;

/**
 * A key with its certificates, as the library takes them.
 *
 * @param chain certificates in PEM, end entity first
 * @param key private key in PEM
 * @param name name in errors
 * @param certificates the chain, parsed
 */
record KeyPem(byte[] chain, byte[] key, String name, X509Certificate[] certificates) {
    private static final String[] TYPES = {"EC", "RSA", "EdDSA", "RSASSA-PSS"};

    /** The keys of the first usable key manager, for servers the preferred ones first. */
    static List<KeyPem> of(KeyManager[] managers, boolean client) throws KeyManagementException {
        for (KeyManager manager : managers == null ? new KeyManager[0] : managers) {
            if (manager instanceof PemKeyManager pem) {
                return List.of(pem.pem());
            }
            if (manager instanceof X509KeyManager keys) {
                List<KeyPem> found = new ArrayList<>();
                for (String alias : client ? clientAliases(keys) : serverAliases(keys)) {
                    KeyPem pem = of(keys, alias);
                    if (pem != null) {
                        found.add(pem);
                    }
                }
                return found;
            }
        }
        return List.of();
    }

    private static Set<String> serverAliases(X509KeyManager keys) {
        Set<String> aliases = new LinkedHashSet<>();
        for (String type : TYPES) {
            aliases.add(serverAlias(keys, type));
        }
        for (String type : TYPES) {
            String[] more = keys.getServerAliases(type, null);
            Collections.addAll(aliases, more == null ? new String[0] : more);
        }
        aliases.remove(null);
        return aliases;
    }

    /** The alias that the manager chooses without a connection; null if it chooses none, or only for connections. */
    private static String serverAlias(X509KeyManager keys, String type) {
        try {
            return keys instanceof X509ExtendedKeyManager extended
                    ? extended.chooseEngineServerAlias(type, null, null)
                    : keys.chooseServerAlias(type, null, null);
        } catch (NullPointerException needsEngine) {
            return null;
        }
    }

    private static Set<String> clientAliases(X509KeyManager keys) {
        String alias = keys instanceof X509ExtendedKeyManager extended
                ? extended.chooseEngineClientAlias(TYPES, null, null)
                : keys.chooseClientAlias(TYPES, null, null);
        return alias == null ? Set.of() : Set.of(alias);
    }

    private static KeyPem of(X509KeyManager keys, String alias) throws KeyManagementException {
        PrivateKey key = keys.getPrivateKey(alias);
        X509Certificate[] chain = keys.getCertificateChain(alias);
        if (key == null || chain == null || chain.length == 0) {
            return null;
        }
        if (!"PKCS#8".equals(key.getFormat()) || key.getEncoded() == null) {
            throw new KeyManagementException("the private key \"" + alias + "\" does not leave its store (a hardware"
                    + " module?): use a key that can be exported as PKCS#8, or the JDK's provider");
        }
        try {
            return new KeyPem(pem(chain), pem("PRIVATE KEY", key.getEncoded()), alias, chain);
        } catch (CertificateEncodingException broken) {
            throw new KeyManagementException("a certificate of \"" + alias + "\" cannot be encoded", broken);
        }
    }

    private static byte[] pem(X509Certificate[] chain) throws CertificateEncodingException {
        StringBuilder text = new StringBuilder();
        for (X509Certificate certificate : chain) {
            text.append(new String(pem("CERTIFICATE", certificate.getEncoded()), StandardCharsets.US_ASCII));
        }
        return text.toString().getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] pem(String label, byte[] der) {
        String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(der);
        return ("-----BEGIN " + label + "-----\n" + body + "\n-----END " + label + "-----\n")
                .getBytes(StandardCharsets.US_ASCII);
    }
}
