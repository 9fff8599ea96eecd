package dev.tautline.tls;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Collection;
import javax.net.ssl.KeyManager;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** Keys and trusted authorities from PEM files, to initialise a context with. */
public final class Pem {
    private Pem() {}

    /**
     * A certificate with its key. A context of this provider takes it in {@code SSLContext.init}; others do not.
     *
     * @param chain file with the certificates, end entity first
     * @param key file with the private key: PKCS#8, PKCS#1 or SEC1, not encrypted
     * @return the key manager
     * @throws IOException if a file cannot be read
     * @throws CertificateException if the first file has no certificate
     */
    public static KeyManager key(Path chain, Path key) throws IOException, CertificateException {
        byte[] certificates = Files.readAllBytes(chain);
        X509Certificate[] parsed = parse(certificates, chain);
        return new PemKeyManager(new KeyPem(certificates, Files.readAllBytes(key), chain.toString(), parsed));
    }

    /**
     * Trust in authorities and no others. Any {@code SSLContext} takes it.
     *
     * @param roots file with certificates of authorities
     * @return the trust manager, the JDK's
     * @throws IOException if the file cannot be read
     * @throws GeneralSecurityException if it has no certificate
     */
    public static TrustManager trust(Path roots) throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        int number = 0;
        for (X509Certificate root : parse(Files.readAllBytes(roots), roots)) {
            store.setCertificateEntry("root " + number++, root);
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers()[0];
    }

    private static X509Certificate[] parse(byte[] pem, Path file) throws CertificateException {
        Collection<? extends Certificate> found =
                CertificateFactory.getInstance("X.509").generateCertificates(new ByteArrayInputStream(pem));
        if (found.isEmpty()) {
            throw new CertificateException(file + " has no certificate in PEM");
        }
        return found.toArray(new X509Certificate[0]);
    }
}
