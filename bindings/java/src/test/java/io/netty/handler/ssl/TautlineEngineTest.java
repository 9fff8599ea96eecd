package io.netty.handler.ssl;

import dev.tautline.tls.TautlineProvider;
import java.security.Provider;
import java.util.List;

/** Netty's own tests of engines, with Tautline's provider at both ends. */
class TautlineEngineTest extends SSLEngineTest {
    private static final Provider PROVIDER = new TautlineProvider();

    TautlineEngineTest() {
        super(SslProvider.isTlsv13Supported(SslProvider.JDK));
    }

    /** Each kind of buffers with one version of TLS, where Netty has all combinations. */
    @Override
    protected List<SSLEngineTestParam> newTestParams() {
        return super.newTestParams().stream()
                .filter(param -> !param.delegate())
                .filter(param -> (param.type() == BufferType.Heap) == (param.combo() == ProtocolCipherCombo.tlsv12()))
                .toList();
    }

    @Override
    protected SslProvider sslClientProvider() {
        return SslProvider.JDK;
    }

    @Override
    protected SslProvider sslServerProvider() {
        return SslProvider.JDK;
    }

    @Override
    protected Provider clientSslContextProvider() {
        return PROVIDER;
    }

    @Override
    protected Provider serverSslContextProvider() {
        return PROVIDER;
    }

    // An overridden test without its annotation does not run. These do not apply:

    /** Needs TLS 1.0. */
    @Override
    public void testIncompatibleCiphers(SSLEngineTestParam param) {}

    /** Tickets are stateless, so the ends of a connection do not agree on the id of a session. */
    @Override
    public void testSSLSessionId(SSLEngineTestParam param) {}

    /** A server that resumes by ticket does not find the program's values of the earlier session. */
    @Override
    public void testSessionCache(SSLEngineTestParam param) {}

    /** As above. */
    @Override
    public void testSessionCacheSize(SSLEngineTestParam param) {}

    /** Key managers are asked once for a context, and not in handshakes. */
    @Override
    public void testSupportedSignatureAlgorithms(SSLEngineTestParam param) {}

    /** Is about Conscrypt. */
    @Override
    public void testMasterKeyLogging(SSLEngineTestParam param) {}

    // These use certificates of X.509 version 1, which the library rejects (RFC 5280, section 4.1.2.1):

    @Override
    public void testMutualAuthDiffCerts(SSLEngineTestParam param) {}

    @Override
    public void testMutualAuthDiffCertsServerFailure(SSLEngineTestParam param) {}

    @Override
    public void testMutualAuthDiffCertsClientFailure(SSLEngineTestParam param) {}

    @Override
    public void testMutualAuthInvalidIntermediateCASucceedWithOptionalClientAuth(SSLEngineTestParam param) {}

    @Override
    public void testMutualAuthInvalidIntermediateCAFailWithOptionalClientAuth(SSLEngineTestParam param) {}

    @Override
    public void testMutualAuthInvalidIntermediateCAFailWithRequiredClientAuth(SSLEngineTestParam param) {}

    @Override
    public void testMutualAuthValidClientCertChainTooLongFailOptionalClientAuth(SSLEngineTestParam param) {}

    @Override
    public void testMutualAuthValidClientCertChainTooLongFailRequireClientAuth(SSLEngineTestParam param) {}

    @Override
    public void testClientHostnameValidationSuccess(SSLEngineTestParam param) {}

    @Override
    public void testClientHostnameValidationFail(SSLEngineTestParam param) {}

    /** The library has no keys that are for RSASSA-PSS alone. */
    @Override
    public void testRSASSAPSS(SSLEngineTestParam param) {}

    // A client's session does not name its own certificates, since it is not known whether the server asked for them:

    @Override
    public void testSessionAfterHandshakeMutualAuth(SSLEngineTestParam param) {}

    @Override
    public void testSessionAfterHandshakeKeyManagerFactoryMutualAuth(SSLEngineTestParam param) {}
}
