package dev.tautline.tls;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/** A key store with a self-signed certificate for localhost and 127.0.0.1, made by the JDK's keytool. */
final class Certificates {
    static final char[] PASSWORD = "password".toCharArray();

    private static final Certificates EC = new Certificates("EC", "-groupname", "secp256r1");
    private static final Certificates RSA = new Certificates("RSA", "-keysize", "2048");

    final KeyStore store;
    private SSLContext ours;

    private Certificates(String algorithm, String option, String value) {
        try {
            Path folder = Files.createTempDirectory("tautline");
            Path file = folder.resolve("keys.p12");
            Process keytool = new ProcessBuilder(
                    Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair",
                    "-alias", "server", "-keyalg", algorithm, option, value, "-dname", "CN=localhost",
                    "-ext", "SAN=dns:localhost,ip:127.0.0.1", "-validity", "30", "-storetype", "PKCS12",
                    "-keystore", file.toString(), "-storepass", "password").inheritIO().start();
            if (keytool.waitFor() != 0) {
                throw new IllegalStateException("keytool failed");
            }
            store = KeyStore.getInstance("PKCS12");
            try (var in = Files.newInputStream(file)) {
                store.load(in, PASSWORD);
            }
            Files.delete(file);
            Files.delete(folder);
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        } catch (GeneralSecurityException | InterruptedException failed) {
            throw new IllegalStateException(failed);
        }
    }

    static Certificates ec() {
        return EC;
    }

    static Certificates rsa() {
        return RSA;
    }

    KeyManager[] keys() throws GeneralSecurityException {
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, PASSWORD);
        return factory.getKeyManagers();
    }

    TrustManager[] trust() throws GeneralSecurityException {
        KeyStore roots = KeyStore.getInstance("PKCS12");
        try {
            roots.load(null, null);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        roots.setCertificateEntry("root", store.getCertificate("server"));
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(roots);
        return factory.getTrustManagers();
    }

    /** A context of Tautline's with the key and trust in its certificate, shared by tests. */
    synchronized SSLContext ours() throws GeneralSecurityException {
        if (ours == null) {
            ours = fresh();
        }
        return ours;
    }

    /** A context as {@link #ours}, with no session. */
    SSLContext fresh() throws GeneralSecurityException {
        SSLContext made = SSLContext.getInstance("TLS", new TautlineProvider());
        made.init(keys(), trust(), null);
        return made;
    }

    /** The same context of the JDK's. */
    SSLContext jdks() throws GeneralSecurityException {
        SSLContext made = SSLContext.getInstance("TLS", "SunJSSE");
        made.init(keys(), trust(), null);
        return made;
    }
}
