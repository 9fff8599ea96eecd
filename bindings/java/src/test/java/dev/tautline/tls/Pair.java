package dev.tautline.tls;

import java.nio.ByteBuffer;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;

/** A client's and a server's engine, joined in memory. */
final class Pair {
    final SSLEngine client;
    final SSLEngine server;
    /** Bytes on their way, in write mode. */
    final ByteBuffer toServer;
    final ByteBuffer toClient;
    int finished;

    Pair(SSLEngine client, SSLEngine server, boolean direct) {
        this.client = client;
        this.server = server;
        client.setUseClientMode(true);
        server.setUseClientMode(false);
        toServer = allocate(1 << 17, direct);
        toClient = allocate(1 << 17, direct);
    }

    static ByteBuffer allocate(int length, boolean direct) {
        return direct ? ByteBuffer.allocateDirect(length) : ByteBuffer.allocate(length);
    }

    /** Handshakes as a program does that goes by the handshake status alone. */
    void handshake() throws SSLException {
        client.beginHandshake();
        server.beginHandshake();
        for (int turn = 0; turn < 100; turn++) {
            if (!step(client, toClient, toServer) & !step(server, toServer, toClient)) {
                return;
            }
        }
        throw new IllegalStateException(client.getHandshakeStatus() + ", " + server.getHandshakeStatus());
    }

    private boolean step(SSLEngine engine, ByteBuffer in, ByteBuffer out) throws SSLException {
        switch (engine.getHandshakeStatus()) {
            case NEED_WRAP -> count(engine.wrap(ByteBuffer.allocate(0), out));
            case NEED_UNWRAP -> unwrap(engine, in);
            case NEED_TASK -> engine.getDelegatedTask().run();
            default -> {
                return false;
            }
        }
        return true;
    }

    private void unwrap(SSLEngine engine, ByteBuffer in) throws SSLException {
        in.flip();
        SSLEngineResult result = engine.unwrap(in, ByteBuffer.allocate(engine.getSession().getApplicationBufferSize()));
        in.compact();
        count(result);
    }

    private void count(SSLEngineResult result) {
        if (result.getHandshakeStatus() == HandshakeStatus.FINISHED) {
            finished++;
        }
    }

    /** Wraps all of {@code data} into a buffer of bytes on their way. */
    static void send(SSLEngine from, ByteBuffer data, ByteBuffer wire) throws SSLException {
        do {
            SSLEngineResult result = from.wrap(data, wire);
            if (result.getStatus() != Status.OK) {
                throw new IllegalStateException(result.toString());
            }
        } while (data.hasRemaining());
    }

    /** Unwraps all bytes on their way into {@code plain}, and returns the last result. */
    static SSLEngineResult receive(SSLEngine to, ByteBuffer wire, ByteBuffer plain) throws SSLException {
        wire.flip();
        SSLEngineResult result;
        do {
            result = to.unwrap(wire, plain);
        } while (result.getStatus() == Status.OK && wire.hasRemaining());
        wire.compact();
        return result;
    }
}
