package dev.tautline.tls;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import java.util.Random;
import javax.net.ssl.*;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class EngineTest {
    @ParameterizedTest
    @CsvSource({"ours,ours,TLSv1.3", "ours,jdks,TLSv1.3", "jdks,ours,TLSv1.3", "ours,ours,TLSv1.2",
            "ours,jdks,TLSv1.2", "jdks,ours,TLSv1.2"})
    void messagesOfAllSizesArrive(String client, String server, String version) throws Exception {
        for (Certificates keys : new Certificates[] {Certificates.ec(), Certificates.rsa()}) {
            for (boolean direct : new boolean[] {false, true}) {
                Pair pair = pair(keys, client, server, version, direct);
                assertEquals(2, pair.finished);
                assertEquals(version, pair.client.getSession().getProtocol());
                assertEquals(version, pair.server.getSession().getProtocol());
                assertEquals("CN=localhost", pair.client.getSession().getPeerPrincipal().getName());
                for (int length : new int[] {1, 64, 1000, 16_384, 16_385, 100_000}) {
                    pass(pair.client, pair.server, pair.toServer, length, direct);
                    pass(pair.server, pair.client, pair.toClient, length, direct);
                }
            }
        }
    }

    static Pair pair(Certificates keys, String client, String server, String version, boolean direct)
            throws GeneralSecurityException, SSLException {
        // A client keeps tickets by host and port, and the two servers do not know each other's.
        SSLEngine one = context(keys, client).createSSLEngine("localhost", server.equals("ours") ? 443 : 444);
        SSLEngine other = context(keys, server).createSSLEngine();
        one.setUseClientMode(true);
        SSLParameters parameters = one.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        parameters.setProtocols(new String[] {version});
        one.setSSLParameters(parameters);
        Pair pair = new Pair(one, other, direct);
        pair.handshake();
        return pair;
    }

    static SSLContext context(Certificates keys, String whose) throws GeneralSecurityException {
        return whose.equals("ours") ? keys.ours() : keys.jdks();
    }

    static void pass(SSLEngine from, SSLEngine to, ByteBuffer wire, int length, boolean direct) throws SSLException {
        byte[] data = new byte[length];
        new Random(length).nextBytes(data);
        ByteBuffer plain = Pair.allocate(length, direct).put(data).flip();
        Pair.send(from, plain, wire);
        ByteBuffer got = Pair.allocate(length + 20_000, direct);
        Pair.receive(to, wire, got);
        byte[] received = new byte[got.flip().remaining()];
        got.get(received);
        assertArrayEquals(data, received);
    }
}
