package dev.tautline.tls;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import org.junit.jupiter.api.Test;

/** Many connections, and programs that do what they should not. */
class LoadTest {
    private static final int CONNECTIONS = 10_000;

    /** Nearly all resume the session of the connection before, and their memory is given back. */
    @Test
    void tenThousandConnectionsResume() throws Exception {
        SSLContext context = Certificates.ec().fresh();
        int resumed = 0;
        byte[] id = {};
        for (int i = 0; i < CONNECTIONS; i++) {
            Pair pair = connect(context);
            byte[] next = pair.client.getSession().getId();
            if (Arrays.equals(id, next)) {
                resumed++;
            }
            id = next;
            pass(pair);
            // Every other connection is left to the garbage collector.
            if (i % 2 == 0) {
                close(pair);
            }
        }
        assertTrue(resumed > CONNECTIONS * 99 / 100, resumed + " resumed");
        // The cleaner works through its queue in no order, so it may take several rounds.
        for (int round = 0; round < 60 && NativeConfig.SESSIONS.get() >= 100; round++) {
            collect();
        }
        assertTrue(NativeConfig.SESSIONS.get() < 100, NativeConfig.SESSIONS + " sessions are not freed");
    }

    @Test
    void twoThreadsAtOnceDisturbNothing() throws Exception {
        Pair pair = connect(Certificates.ec().ours());
        AtomicReference<Throwable> failed = new AtomicReference<>();
        AtomicInteger received = new AtomicInteger();
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                ByteBuffer wire = ByteBuffer.allocateDirect(20_000);
                ByteBuffer data = ByteBuffer.allocateDirect(1000);
                ByteBuffer plain = ByteBuffer.allocateDirect(20_000);
                try {
                    for (int turn = 0; turn < 5000; turn++) {
                        synchronized (wire) {
                            pair.client.wrap(data.clear(), wire.clear());
                        }
                        // The order of records is the program's to keep: here the pair is one.
                        pair.client.getSession().getPeerCertificates();
                        assertEquals(Status.BUFFER_UNDERFLOW,
                                pair.client.unwrap(ByteBuffer.allocate(3), plain.clear()).getStatus());
                        received.addAndGet(data.position());
                    }
                } catch (Throwable thrown) {
                    failed.set(thrown);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertNull(failed.get());
        assertEquals(4 * 5000 * 1000, received.get());
    }

    @Test
    void badUseIsAnException() throws Exception {
        SSLEngine fresh = Certificates.ec().ours().createSSLEngine();
        assertThrows(IllegalStateException.class, fresh::beginHandshake);
        assertThrows(IllegalArgumentException.class, () -> fresh.setEnabledProtocols(new String[] {"TLSv9"}));
        assertThrows(IllegalArgumentException.class, () -> fresh.setEnabledCipherSuites(new String[] {"x"}));
        Pair pair = connect(Certificates.ec().ours());
        ByteBuffer wire = ByteBuffer.allocate(20_000);
        assertThrows(IllegalArgumentException.class, () -> pair.client.wrap((ByteBuffer) null, wire));
        assertThrows(IllegalArgumentException.class, () -> pair.client.unwrap(wire, (ByteBuffer) null));
        assertThrows(IllegalArgumentException.class, () -> pair.client.wrap(new ByteBuffer[] {null}, wire));
        assertThrows(IndexOutOfBoundsException.class, () -> pair.client.wrap(new ByteBuffer[1], 1, 1, wire));
        assertThrows(java.nio.ReadOnlyBufferException.class,
                () -> pair.client.unwrap(wire, ByteBuffer.allocate(9).asReadOnlyBuffer()));
        assertThrows(IllegalArgumentException.class, () -> pair.client.setUseClientMode(false));
        ByteBuffer shared = ByteBuffer.allocate(40_000);
        assertThrows(IllegalArgumentException.class, () -> pair.client.wrap(shared.duplicate().limit(100), shared));
        pass(pair);
        assertEquals(Status.BUFFER_OVERFLOW,
                pair.client.wrap(ByteBuffer.allocate(100), ByteBuffer.allocate(100)).getStatus());
        // A record that was changed on its way ends the connection, and no more than that.
        Pair.send(pair.client, ByteBuffer.allocate(100), pair.toServer);
        pair.toServer.put(50, (byte) (pair.toServer.get(50) ^ 1));
        assertThrows(SSLException.class, () -> Pair.receive(pair.server, pair.toServer, ByteBuffer.allocate(99_999)));
        assertEquals(Status.CLOSED, pair.server.wrap(ByteBuffer.allocate(0), pair.toClient).getStatus());
        assertThrows(SSLException.class, () -> Pair.receive(pair.client, pair.toClient, ByteBuffer.allocate(99_999)));
        assertEquals(Status.CLOSED, pair.server.unwrap(wire, ByteBuffer.allocate(20_000)).getStatus());
    }

    @Test
    void aTrustManagerThatThrowsEndsTheHandshake() throws Exception {
        SSLContext context = SSLContext.getInstance("TLS", new TautlineProvider());
        context.init(null, new javax.net.ssl.TrustManager[] {new javax.net.ssl.X509TrustManager() {
            @Override
            public void checkClientTrusted(java.security.cert.X509Certificate[] chain, String type) {}

            @Override
            public void checkServerTrusted(java.security.cert.X509Certificate[] chain, String type) {
                throw new UnsupportedOperationException("on purpose");
            }

            @Override
            public java.security.cert.X509Certificate[] getAcceptedIssuers() {
                return new java.security.cert.X509Certificate[0];
            }
        }}, null);
        Pair pair = new Pair(context.createSSLEngine("localhost", 1), Certificates.ec().ours().createSSLEngine(), true);
        SSLException failed = assertThrows(SSLException.class, pair::handshake);
        assertEquals("on purpose", failed.getCause().getMessage());
    }

    private static Pair connect(SSLContext context) throws SSLException {
        Pair pair = new Pair(context.createSSLEngine("localhost", 443), context.createSSLEngine(), false);
        pair.handshake();
        return pair;
    }

    /** Passes a message each way, which takes the tickets along. */
    private static void pass(Pair pair) throws SSLException {
        EngineTest.pass(pair.server, pair.client, pair.toClient, 64, false);
        EngineTest.pass(pair.client, pair.server, pair.toServer, 64, false);
    }

    private static void close(Pair pair) throws SSLException {
        ByteBuffer nothing = ByteBuffer.allocate(0);
        pair.client.closeOutbound();
        pair.client.wrap(nothing, pair.toServer);
        Pair.receive(pair.server, pair.toServer, ByteBuffer.allocate(20_000));
        pair.server.closeOutbound();
        pair.server.wrap(nothing, pair.toClient);
        Pair.receive(pair.client, pair.toClient, ByteBuffer.allocate(20_000));
    }

    /** Waits until the cleaner has done its work. */
    private static void collect() throws InterruptedException {
        CountDownLatch cleaned = new CountDownLatch(1);
        NativeConfig.CLEANER.register(new Object(), cleaned::countDown);
        do {
            System.gc();
        } while (!cleaned.await(1, TimeUnit.SECONDS));
    }
}
