package dev.tautline.tls;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import javax.net.ssl.SNIMatcher;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.StandardConstants;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;
import org.junit.jupiter.api.Test;

/** Calls that are wrong end in an exception or a status, and leave the connection as it was. */
class BadUseTest {
    @Test
    void wrongBuffersAreRefusedAndTheConnectionGoesOn() throws Exception {
        Pair pair = EngineTest.pair(Certificates.ec(), "ours", "ours", "TLSv1.3", true);
        ByteBuffer data = ByteBuffer.allocate(10);
        ByteBuffer room = ByteBuffer.allocateDirect(20_000);
        assertThrows(IllegalArgumentException.class, () -> pair.client.wrap((ByteBuffer) null, room));
        assertThrows(IllegalArgumentException.class, () -> pair.client.wrap(data, null));
        assertThrows(IllegalArgumentException.class, () -> pair.client.wrap(new ByteBuffer[] {data, null}, room));
        assertThrows(IllegalArgumentException.class, () -> pair.server.unwrap(null, room));
        assertThrows(IllegalArgumentException.class, () -> pair.server.unwrap(data, (ByteBuffer) null));
        assertThrows(ReadOnlyBufferException.class, () -> pair.client.wrap(data, room.asReadOnlyBuffer()));
        ByteBuffer[] one = {data};
        for (int[] wrong : new int[][] {{-1, 1}, {0, -1}, {0, 2}, {1, 1}, {Integer.MAX_VALUE, 1}}) {
            assertThrows(IndexOutOfBoundsException.class, () -> pair.client.wrap(one, wrong[0], wrong[1], room));
            assertThrows(IndexOutOfBoundsException.class, () -> pair.server.unwrap(data, one, wrong[0], wrong[1]));
        }
        assertEquals(Status.BUFFER_OVERFLOW, pair.client.wrap(data, ByteBuffer.allocate(3)).getStatus());
        assertEquals(10, data.remaining());
        EngineTest.pass(pair.client, pair.server, pair.toServer, 10, true);
    }

    @Test
    void twoThreadsAtOnceTakeTurns() throws Exception {
        Pair pair = EngineTest.pair(Certificates.ec(), "ours", "ours", "TLSv1.3", true);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                ByteBuffer wire = ByteBuffer.allocateDirect(20_000);
                try {
                    for (int n = 0; n < 2000; n++) {
                        assertEquals(Status.OK, pair.client.wrap(ByteBuffer.allocate(100), wire.clear()).getStatus());
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
        // The other direction had no part in this.
        EngineTest.pass(pair.server, pair.client, pair.toClient, 1000, true);
    }

    @Test
    void aTrustManagerThatThrowsEndsTheHandshakeWithItsException() throws Exception {
        RuntimeException boom = new RuntimeException("boom");
        SSLEngine client = client(() -> {
            throw boom;
        });
        Pair pair = new Pair(client, Certificates.ec().ours().createSSLEngine(), true);
        SSLHandshakeException failed = assertThrows(SSLHandshakeException.class, pair::handshake);
        boolean isNamed = false;
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            isNamed |= cause == boom;
        }
        assertTrue(isNamed, failed.toString());
    }

    @Test
    void aTrustManagerThatDoesNotReturnHoldsUpItsOwnConnectionAlone() throws Exception {
        CountDownLatch entered = new CountDownLatch(1);
        CountDownLatch returns = new CountDownLatch(1);
        SSLEngine client = client(() -> {
            entered.countDown();
            returns.await();
        });
        Pair held = new Pair(client, Certificates.ec().ours().createSSLEngine(), true);
        AtomicReference<Throwable> failed = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            try {
                held.handshake();
            } catch (Throwable thrown) {
                failed.set(thrown);
            }
        });
        thread.start();
        assertTrue(entered.await(60, TimeUnit.SECONDS));
        Pair other = EngineTest.pair(Certificates.ec(), "ours", "ours", "TLSv1.3", true);
        EngineTest.pass(other.client, other.server, other.toServer, 1000, true);
        returns.countDown();
        thread.join();
        assertNull(failed.get());
        EngineTest.pass(held.client, held.server, held.toServer, 1000, true);
    }

    @Test
    void aServersCallbackThatThrowsEndsTheHandshakeWithItsException() throws Exception {
        RuntimeException boom = new RuntimeException("boom");
        SNIMatcher matcher = new SNIMatcher(StandardConstants.SNI_HOST_NAME) {
            @Override
            public boolean matches(SNIServerName name) {
                throw boom;
            }
        };
        for (boolean byName : new boolean[] {false, true}) {
            SSLEngine client = Certificates.ec().ours().createSSLEngine("www.example.com", 443);
            client.setUseClientMode(true);
            SSLParameters asks = client.getSSLParameters();
            asks.setApplicationProtocols(new String[] {"h2"});
            client.setSSLParameters(asks);
            SSLEngine server = Certificates.ec().ours().createSSLEngine();
            if (byName) {
                SSLParameters matches = server.getSSLParameters();
                matches.setSNIMatchers(List.of(matcher));
                server.setSSLParameters(matches);
            } else {
                server.setHandshakeApplicationProtocolSelector((engine, offered) -> {
                    throw boom;
                });
            }
            Pair pair = new Pair(client, server, true);
            assertSame(boom, assertThrows(SSLHandshakeException.class, pair::handshake).getCause());
            // The client is told, and further calls find the connection closed.
            assertEquals(Status.CLOSED, server.wrap(ByteBuffer.allocate(0), pair.toClient).getStatus());
            SSLException told = assertThrows(SSLException.class,
                    () -> Pair.receive(client, pair.toClient, ByteBuffer.allocate(20_000)));
            assertTrue(told.getMessage().contains("internal"), told.getMessage());
            assertEquals(Status.CLOSED, server.wrap(ByteBuffer.allocate(9), pair.toClient).getStatus());
            assertEquals(Status.CLOSED, server.unwrap(pair.toServer.flip(), pair.toClient).getStatus());
        }
    }

    /** What a trust manager does with each chain. */
    private interface Check {
        void run() throws InterruptedException;
    }

    private static SSLEngine client(Check check) throws Exception {
        X509TrustManager manager = new X509TrustManager() {
            @Override
            public void checkClientTrusted(X509Certificate[] chain, String kind) {}

            @Override
            public void checkServerTrusted(X509Certificate[] chain, String kind) {
                try {
                    check.run();
                } catch (InterruptedException interrupted) {
                    throw new IllegalStateException(interrupted);
                }
            }

            @Override
            public X509Certificate[] getAcceptedIssuers() {
                return new X509Certificate[0];
            }
        };
        SSLContext context = SSLContext.getInstance("TLS", new TautlineProvider());
        context.init(null, new TrustManager[] {manager}, null);
        SSLEngine engine = context.createSSLEngine("localhost", 443);
        engine.setUseClientMode(true);
        return engine;
    }
}
