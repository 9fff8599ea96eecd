package dev.tautline.tls;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ends of connections, in every order of the calls. */
class CloseTest {
    private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.3", "TLSv1.2"})
    void everyOrderOfClosesEnds(String version) throws Exception {
        // Each call once: both ends close outbound and inbound, and each sends what it has and reads what came.
        for (List<Integer> order : permutations(6)) {
            Pair pair = EngineTest.pair(Certificates.ec(), "ours", "ours", version, false);
            for (int call : order) {
                run(pair, call);
            }
            // After that, a program that goes by the status alone comes to an end.
            for (int turn = 0; turn < 3; turn++) {
                for (int call : new int[] {0, 2, 3, 4, 5}) {
                    run(pair, call);
                }
                pair.server.closeOutbound();
            }
            closeInbound(pair.client);
            closeInbound(pair.server);
            for (SSLEngine engine : new SSLEngine[] {pair.client, pair.server}) {
                assertTrue(engine.isInboundDone() && engine.isOutboundDone(), order.toString());
                assertEquals(HandshakeStatus.NOT_HANDSHAKING, engine.getHandshakeStatus());
                assertEquals(Status.CLOSED, engine.wrap(NOTHING, ByteBuffer.allocate(20_000)).getStatus());
                assertEquals(Status.CLOSED, engine.unwrap(NOTHING, ByteBuffer.allocate(20_000)).getStatus());
            }
        }
    }

    @Test
    void dataAfterTheOtherEndsCloseStillArrives() throws Exception {
        Pair pair = EngineTest.pair(Certificates.ec(), "ours", "ours", "TLSv1.3", true);
        pair.client.closeOutbound();
        SSLEngineResult closed = pair.client.wrap(NOTHING, pair.toServer);
        assertEquals(Status.CLOSED, closed.getStatus());
        assertEquals(HandshakeStatus.NEED_UNWRAP, closed.getHandshakeStatus());
        assertEquals(Status.CLOSED, Pair.receive(pair.server, pair.toServer, ByteBuffer.allocate(20_000)).getStatus());
        EngineTest.pass(pair.server, pair.client, pair.toClient, 5000, true);
        assertFalse(pair.client.isInboundDone());
    }

    @Test
    void anInboundThatIsCutIsAnError() throws Exception {
        Pair pair = EngineTest.pair(Certificates.ec(), "ours", "ours", "TLSv1.3", true);
        assertThrows(SSLException.class, pair.server::closeInbound);
        pair.server.closeInbound();
        pair.server.closeOutbound();
        assertEquals(Status.CLOSED, pair.server.wrap(NOTHING, pair.toClient).getStatus());
        assertEquals(Status.CLOSED, Pair.receive(pair.client, pair.toClient, ByteBuffer.allocate(99_999)).getStatus());
        pair.client.closeInbound();
    }

    @Test
    void closesBeforeTheHandshake() throws Exception {
        SSLEngine engine = Certificates.ec().ours().createSSLEngine("localhost", 1);
        engine.setUseClientMode(true);
        engine.closeOutbound();
        assertTrue(engine.isOutboundDone());
        assertEquals(Status.CLOSED, engine.wrap(NOTHING, ByteBuffer.allocate(20_000)).getStatus());
        assertThrows(SSLException.class, engine::beginHandshake);
        engine.closeInbound();
    }

    @Test
    void closesDuringTheHandshake() throws Exception {
        SSLEngine engine = Certificates.ec().ours().createSSLEngine("localhost", 1);
        engine.setUseClientMode(true);
        ByteBuffer wire = ByteBuffer.allocate(20_000);
        assertEquals(HandshakeStatus.NEED_UNWRAP, engine.wrap(NOTHING, wire).getHandshakeStatus());
        engine.closeOutbound();
        assertEquals(Status.CLOSED, engine.wrap(NOTHING, wire).getStatus());
        assertTrue(engine.isOutboundDone());
    }

    private static void run(Pair pair, int call) throws SSLException {
        switch (call) {
            case 0 -> pair.client.closeOutbound();
            case 1 -> closeInbound(pair.server);
            case 2 -> pair.client.wrap(NOTHING, pair.toServer);
            case 3 -> Pair.receive(pair.server, pair.toServer, ByteBuffer.allocate(20_000));
            case 4 -> pair.server.wrap(NOTHING, pair.toClient);
            default -> Pair.receive(pair.client, pair.toClient, ByteBuffer.allocate(20_000));
        }
    }

    private static void closeInbound(SSLEngine engine) {
        try {
            engine.closeInbound();
        } catch (SSLException cut) {
            assertTrue(engine.isInboundDone());
        }
    }

    private static List<List<Integer>> permutations(int length) {
        List<List<Integer>> found = List.of(List.of());
        for (int next = 0; next < length; next++) {
            List<List<Integer>> longer = new ArrayList<>();
            for (List<Integer> one : found) {
                for (int place = 0; place <= one.size(); place++) {
                    List<Integer> more = new ArrayList<>(one);
                    more.add(place, next);
                    longer.add(more);
                }
            }
            found = longer;
        }
        return found;
    }
}
