package dev.tautline.tls;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.io.ByteArrayInputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.X509ExtendedTrustManager;
import javax.net.ssl.X509TrustManager;

/**
 * The library's question whether a handshake goes on, answered by the trust manager of the engine whose handshake
 * runs in this thread.
 */
final class Verification {
    /** A {@code taut_tls_verify} for all configurations. */
    static final MemorySegment CALLBACK = stub();

    private static final ThreadLocal<TautlineEngine> CURRENT = new ThreadLocal<>();

    private Verification() {}

    /** Names the engine whose handshake this thread runs; null after the handshake's call. */
    static void enter(TautlineEngine engine) {
        if (engine == null) {
            CURRENT.remove();
        } else {
            CURRENT.set(engine);
        }
    }

    /** Asks a trust manager. */
    static void check(X509TrustManager trust, X509Certificate[] chain, SSLEngine engine) throws CertificateException {
        if (trust == null) {
            throw new CertificateException("the context has no X509TrustManager");
        }
        boolean client = engine.getUseClientMode();
        String type = client ? "UNKNOWN" : chain[0].getPublicKey().getAlgorithm();
        if (trust instanceof X509ExtendedTrustManager extended) {
            if (client) {
                extended.checkServerTrusted(chain, type, engine);
            } else {
                extended.checkClientTrusted(chain, type, engine);
            }
            return;
        }
        if (client) {
            trust.checkServerTrusted(chain, type);
            String identification = engine.getSSLParameters().getEndpointIdentificationAlgorithm();
            if (identification != null && !identification.isEmpty()) {
                HostName.check(engine.getPeerHost(), chain[0]);
            }
        } else {
            trust.checkClientTrusted(chain, type);
        }
    }

    static X509Certificate parse(byte[] der) throws CertificateException {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        return (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(der));
    }

    /** The function that the library calls. Nothing may be thrown out of it. */
    private static int decide(MemorySegment user, MemorySegment peer) {
        TautlineEngine engine = CURRENT.get();
        if (engine == null) {
            return Native.REJECT;
        }
        try {
            engine.verify(chain(peer.reinterpret(64)));
            return Native.ACCEPT;
        } catch (Throwable thrown) {
            engine.rejected(thrown);
            return Native.REJECT;
        }
    }

    /** The certificates of a {@code taut_tls_peer}. */
    private static X509Certificate[] chain(MemorySegment peer) throws CertificateException {
        int count = Math.toIntExact(peer.get(JAVA_LONG, 16));
        MemorySegment slices = peer.get(ADDRESS, 8).reinterpret(16L * count);
        X509Certificate[] chain = new X509Certificate[count];
        for (int i = 0; i < count; i++) {
            long length = slices.get(JAVA_LONG, 16L * i + 8);
            chain[i] = parse(slices.get(ADDRESS, 16L * i).reinterpret(length).toArray(JAVA_BYTE));
        }
        return chain;
    }

    private static MemorySegment stub() {
        try {
            MethodType type = MethodType.methodType(int.class, MemorySegment.class, MemorySegment.class);
            return Linker.nativeLinker().upcallStub(
                    MethodHandles.lookup().findStatic(Verification.class, "decide", type),
                    FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS), Arena.global());
        } catch (ReflectiveOperationException impossible) {
            throw new ExceptionInInitializerError(impossible);
        }
    }
}
