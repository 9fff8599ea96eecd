package dev.tautline.tls;

import java.security.GeneralSecurityException;
import java.security.KeyManagementException;
import java.security.KeyStore;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLContextSpi;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLServerSocketFactory;
import javax.net.ssl.SSLSessionContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/** A context: keys, trust, and the native configurations that its engines share. */
abstract class TautlineContext extends SSLContextSpi {
    /** The versions of TLS, the best one first. */
    static final List<String> PROTOCOLS = List.of("TLSv1.3", "TLSv1.2");

    /** The cipher suites, by the library's preference. */
    static final List<String> SUITES = List.of(
            "TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256");

    /** Most configurations that a context keeps. Programs use one or two. */
    private static final int MOST_CONFIGS = 64;

    private final List<String> protocols;
    private final Sessions serverSessions = new Sessions();
    private final Sessions clientSessions = new Sessions();
    private final Map<Settings, NativeConfig> configs = new LinkedHashMap<>(16, 0.75f, true);
    private KeyManager[] keyManagers;
    private TrustManager[] trustManagers;
    private List<KeyPem> serverKeys;
    private List<KeyPem> clientKeys;
    private X509TrustManager trust;
    private SSLContext sockets;

    private TautlineContext(List<String> protocols) {
        this.protocols = protocols;
    }

    /** A context for all versions. */
    public static final class Any extends TautlineContext {
        /** Makes it. */
        public Any() {
            super(PROTOCOLS);
        }
    }

    /** A context for TLS 1.2, unless an engine is told otherwise. */
    public static final class Tls12 extends TautlineContext {
        /** Makes it. */
        public Tls12() {
            super(List.of("TLSv1.2"));
        }
    }

    @Override
    protected synchronized void engineInit(KeyManager[] keys, TrustManager[] trusts, SecureRandom random)
            throws KeyManagementException {
        serverKeys = KeyPem.of(keys, false);
        clientKeys = KeyPem.of(keys, true);
        trustManagers = trusts == null ? defaultTrust() : trusts.clone();
        keyManagers = keys == null ? null : keys.clone();
        trust = null;
        for (TrustManager manager : trustManagers) {
            if (trust == null && manager instanceof X509TrustManager found) {
                trust = found;
            }
        }
        sockets = null;
        configs.clear();
    }

    @Override
    protected SSLEngine engineCreateSSLEngine() {
        return engineCreateSSLEngine(null, -1);
    }

    @Override
    protected synchronized SSLEngine engineCreateSSLEngine(String host, int port) {
        if (serverKeys == null) {
            throw new IllegalStateException("SSLContext.init comes first");
        }
        return new TautlineEngine(this, host, port, protocols);
    }

    /** Sockets are the JDK's, with the same keys and the same trust. */
    @Override
    protected SSLSocketFactory engineGetSocketFactory() {
        return sockets().getSocketFactory();
    }

    @Override
    protected SSLServerSocketFactory engineGetServerSocketFactory() {
        return sockets().getServerSocketFactory();
    }

    @Override
    protected SSLSessionContext engineGetServerSessionContext() {
        return serverSessions;
    }

    @Override
    protected SSLSessionContext engineGetClientSessionContext() {
        return clientSessions;
    }

    @Override
    protected SSLParameters engineGetDefaultSSLParameters() {
        return new SSLParameters(SUITES.toArray(new String[0]), protocols.toArray(new String[0]));
    }

    @Override
    protected SSLParameters engineGetSupportedSSLParameters() {
        return new SSLParameters(SUITES.toArray(new String[0]), PROTOCOLS.toArray(new String[0]));
    }

    Sessions sessions(boolean client) {
        return client ? clientSessions : serverSessions;
    }

    X509TrustManager trust() {
        return trust;
    }

    /** The certificates that a server shows to clients without a name; null if there are none. */
    X509Certificate[] serverChain() {
        return serverKeys.isEmpty() ? null : serverKeys.get(0).certificates();
    }

    /** The configuration for these settings, made at their first use. */
    NativeConfig config(Settings settings) throws SSLException {
        synchronized (configs) {
            NativeConfig found = configs.get(settings);
            if (found == null) {
                if (!settings.client() && serverKeys.isEmpty()) {
                    throw new SSLException("a server needs a key and a certificate: give SSLContext.init a"
                            + " KeyManager that has them");
                }
                found = new NativeConfig(settings, settings.client() ? clientKeys : serverKeys);
                configs.put(settings, found);
                if (configs.size() > MOST_CONFIGS) {
                    configs.remove(configs.keySet().iterator().next());
                }
            }
            return found;
        }
    }

    private synchronized SSLContext sockets() {
        if (serverKeys == null) {
            throw new IllegalStateException("SSLContext.init comes first");
        }
        if (sockets == null) {
            try {
                SSLContext made = SSLContext.getInstance("TLS", "SunJSSE");
                made.init(keyManagers, trustManagers, null);
                sockets = made;
            } catch (GeneralSecurityException failed) {
                throw new IllegalStateException("the JDK makes no sockets with these keys: " + failed, failed);
            }
        }
        return sockets;
    }

    private static TrustManager[] defaultTrust() throws KeyManagementException {
        try {
            TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            factory.init((KeyStore) null);
            return factory.getTrustManagers();
        } catch (GeneralSecurityException failed) {
            throw new KeyManagementException("the default trust store cannot be read", failed);
        }
    }
}
