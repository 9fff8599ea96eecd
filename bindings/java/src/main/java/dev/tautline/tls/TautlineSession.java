package dev.tautline.tls;

import java.security.Principal;
import java.security.SecureRandom;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.net.ssl.ExtendedSSLSession;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSessionBindingEvent;
import javax.net.ssl.SSLSessionBindingListener;
import javax.net.ssl.SSLSessionContext;

/** The facts of one connection. Before the handshake they are those of no session: protocol {@code NONE}. */
final class TautlineSession extends ExtendedSSLSession {
    /** Bytes of plaintext in a record. */
    static final int MOST_PLAIN = 16_384;

    /** Bytes of the longest record that peers make, as in the JDK's engine; see {@link #expectRecord}. */
    static final int USUAL_RECORD = 16_709;

    private static final String[] SCHEMES = {
        "SHA256withECDSA", "SHA384withECDSA", "Ed25519", "SHA256withRSAandMGF1", "SHA384withRSAandMGF1",
        "SHA512withRSAandMGF1", "SHA256withRSA", "SHA384withRSA", "SHA512withRSA", "SHA512withECDSA", "RSASSA-PSS",
        "EdDSA",
    };
    private static final SecureRandom RANDOM = new SecureRandom();

    private final String peerHost;
    private final int peerPort;
    private final X509Certificate[] local;
    /** The program's values, which a resumed session shares with the earlier one. */
    private Map<String, Object> values = Collections.synchronizedMap(new HashMap<>());
    private Sessions context;
    private byte[] id = {};
    private String protocol = "NONE";
    private String suite = "SSL_NULL_WITH_NULL_NULL";
    private X509Certificate[] peer = {};
    private byte[][] unparsed = {};
    private List<SNIServerName> names = List.of();
    private long created = System.currentTimeMillis();
    private volatile long accessed = created;
    private volatile int longestRecord = USUAL_RECORD;
    private boolean valid;

    TautlineSession(String peerHost, int peerPort, X509Certificate[] local) {
        this.peerHost = peerHost;
        this.peerPort = peerPort;
        this.local = local;
    }

    /** The handshake begins, with the best version that it may have. */
    synchronized void begin(String version, List<SNIServerName> requested) {
        protocol = version;
        names = List.copyOf(requested);
    }

    /** The names are those of a ClientHello. */
    synchronized void request(List<SNIServerName> requested) {
        names = List.copyOf(requested);
    }

    synchronized void showPeer(X509Certificate[] chain) {
        peer = chain;
    }

    /** The peer's certificates in DER, if they are not known parsed. */
    synchronized void showPeer(byte[][] chain) {
        unparsed = chain;
    }

    /** The handshake is complete. {@code earlier} is the session that it resumed, if that is known. */
    synchronized void establish(Sessions known, String version, String cipherSuite, TautlineSession earlier) {
        context = known;
        protocol = version;
        suite = cipherSuite;
        valid = true;
        if (earlier == null) {
            id = new byte[32];
            RANDOM.nextBytes(id);
        } else {
            id = earlier.id;
            created = earlier.created;
            values = earlier.values;
        }
    }

    /** A record of this length is on its way: buffers must be able to hold it. */
    void expectRecord(int length) {
        longestRecord = Math.max(longestRecord, length);
    }

    @Override
    public synchronized byte[] getId() {
        return id.clone();
    }

    @Override
    public synchronized SSLSessionContext getSessionContext() {
        return context;
    }

    @Override
    public synchronized long getCreationTime() {
        return created;
    }

    @Override
    public long getLastAccessedTime() {
        return accessed;
    }

    @Override
    public void invalidate() {
        Sessions known;
        synchronized (this) {
            known = valid ? context : null;
            valid = false;
        }
        if (known != null) {
            known.remove(this);
        }
    }

    @Override
    public synchronized boolean isValid() {
        return valid;
    }

    @Override
    public void putValue(String name, Object value) {
        Object old;
        synchronized (this) {
            if (name == null || value == null) {
                throw new IllegalArgumentException("neither the name nor the value may be null");
            }
            old = values.put(name, value);
        }
        if (value instanceof SSLSessionBindingListener listener) {
            listener.valueBound(new SSLSessionBindingEvent(this, name));
        }
        unbound(name, old);
    }

    @Override
    public synchronized Object getValue(String name) {
        return values.get(checked(name));
    }

    @Override
    public void removeValue(String name) {
        Object old;
        synchronized (this) {
            old = values.remove(checked(name));
        }
        unbound(name, old);
    }

    @Override
    public synchronized String[] getValueNames() {
        return values.keySet().toArray(new String[0]);
    }

    @Override
    public synchronized Certificate[] getPeerCertificates() throws SSLPeerUnverifiedException {
        if (peer.length == 0 && unparsed.length > 0) {
            X509Certificate[] chain = new X509Certificate[unparsed.length];
            try {
                for (int i = 0; i < chain.length; i++) {
                    chain[i] = Verification.parse(unparsed[i]);
                }
            } catch (CertificateException broken) {
                throw new SSLPeerUnverifiedException("a certificate of the peer cannot be parsed: " + broken);
            }
            peer = chain;
        }
        if (peer.length == 0) {
            throw new SSLPeerUnverifiedException("the peer showed no certificate");
        }
        return peer.clone();
    }

    @Override
    public Certificate[] getLocalCertificates() {
        return local == null ? null : local.clone();
    }

    @Override
    public Principal getPeerPrincipal() throws SSLPeerUnverifiedException {
        return ((X509Certificate) getPeerCertificates()[0]).getSubjectX500Principal();
    }

    @Override
    public Principal getLocalPrincipal() {
        return local == null ? null : local[0].getSubjectX500Principal();
    }

    @Override
    public synchronized String getCipherSuite() {
        return suite;
    }

    @Override
    public synchronized String getProtocol() {
        return protocol;
    }

    @Override
    public String getPeerHost() {
        return peerHost;
    }

    @Override
    public int getPeerPort() {
        return peerPort;
    }

    @Override
    public int getPacketBufferSize() {
        return longestRecord;
    }

    @Override
    public int getApplicationBufferSize() {
        return MOST_PLAIN;
    }

    @Override
    public String[] getLocalSupportedSignatureAlgorithms() {
        return SCHEMES.clone();
    }

    @Override
    public String[] getPeerSupportedSignatureAlgorithms() {
        return SCHEMES.clone();
    }

    @Override
    public synchronized List<SNIServerName> getRequestedServerNames() {
        return names;
    }

    @Override
    public List<byte[]> getStatusResponses() {
        return List.of();
    }

    @Override
    public String toString() {
        return "Session(" + getProtocol() + "|" + getCipherSuite() + ")";
    }

    private static String checked(String name) {
        if (name == null) {
            throw new IllegalArgumentException("the name may not be null");
        }
        return name;
    }

    private void unbound(String name, Object old) {
        if (old instanceof SSLSessionBindingListener listener) {
            listener.valueUnbound(new SSLSessionBindingEvent(this, name));
        }
    }
}
