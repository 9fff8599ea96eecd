package dev.tautline.tls;

import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;

/**
 * Rounds of {@link Bench} that another program chooses, line by line.
 *
 * <p>That program starts a JVM for each engine. In a shared one, calls of {@code wrap} have three targets, and the compiler
 * inlines none of them.
 */
final class BenchWorker {
    private static final byte[] REQUEST =
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    private static final byte[] HEAD =
            "HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n".getBytes(StandardCharsets.US_ASCII);
    private static final int RESPONSE = HEAD.length + (16 << 10);
    private static final int SMALL = 100;
    private static final int LARGE = 64 << 10;

    /** Most nanoseconds until the JVM has compiled a work, and those of one round until then. */
    private static final long LONGEST = 6_000_000_000L;
    private static final long SHORT = 300_000_000L;

    private BenchWorker() {}

    /** Answers each line until the input ends. */
    static void answer(InputStream input) throws Exception {
        List<Bench.Candidate> candidates = Bench.candidates();
        Set<String> warm = new HashSet<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                Bench.Candidate candidate = candidates.stream().filter(one -> one.name().equals(words[1]))
                        .findFirst().orElseThrow(() -> new IllegalStateException("there is no " + words[1]));
                long nanos = Long.parseLong(words[2]) * 1_000_000;
                if (warm.add(words[0] + words[1])) {
                    settle(words[0], candidate);
                }
                System.out.println(figures(words[0], candidate, nanos));
            } catch (Exception thrown) {
                System.out.println("failed " + thrown.toString().replace('\n', ' '));
            }
            System.out.flush();
        }
    }

    /** Runs short rounds until two in a row cost as much as the one before, for at most {@link #LONGEST}. */
    private static void settle(String work, Bench.Candidate candidate) throws Exception {
        long start = System.nanoTime();
        double last = 0;
        for (int alike = 0; alike < 2 && System.nanoTime() - start < LONGEST; ) {
            String figures = figures(work, candidate, SHORT);
            double cost = Double.parseDouble(figures.substring(figures.lastIndexOf(' ') + 1));
            alike = Math.abs(cost - last) < 0.05 * last ? alike + 1 : 0;
            last = cost;
        }
    }

    /** The figures of a round, the cost last. */
    private static String figures(String work, Bench.Candidate candidate, long nanos) throws Exception {
        Bench bench = new Bench(nanos, 1);
        switch (work) {
            case "memory-64":
                return "cpu_us " + bench.memory(candidate, 64, true) / 1000;
            case "memory-16384":
                return "cpu_us " + bench.memory(candidate, 16_384, true) / 1000;
            case "handshake":
                return "cpu_us " + bench.handshake(candidate, false);
            case "resumed":
                return "cpu_us " + bench.handshake(candidate, true);
            case "duplex":
                double[] got = bench.duplex(candidate);
                return "read " + got[0] / 2 + " write " + got[0] / 2 + " per_cpu " + got[1];
            case "get":
                return kept(candidate, nanos, new byte[][] {REQUEST}, new byte[][] {HEAD, new byte[16 << 10]});
            case "mixed":
                return kept(candidate, nanos, new byte[][] {{1}}, new byte[][] {new byte[SMALL], new byte[LARGE]});
            case "get-close":
                return closing(candidate, nanos);
            default:
                throw new IllegalStateException("there is no work " + work);
        }
    }

    /** Requests on one connection, each answered with these pieces in writes of their own. */
    private static String kept(Bench.Candidate candidate, long nanos, byte[][] asked, byte[][] answer)
            throws Exception {
        Pair pair = Bench.connect(candidate, true, true);
        try (ServerSocketChannel listener = listen();
                Wire client = new Wire(pair.client, SocketChannel.open(listener.getLocalAddress()));
                Wire server = new Wire(pair.server, listener.accept())) {
            Thread thread = Thread.ofPlatform().daemon().start(() -> serve(server, length(asked), answer, false));
            long start = System.nanoTime();
            long cpu = Bench.cpu();
            long count = 0;
            while (System.nanoTime() - start < nanos) {
                client.write(asked);
                client.read(length(answer));
                count++;
            }
            String figures = rate(count, start, cpu);
            client.channel.shutdownOutput();
            thread.join();
            Bench.release(pair);
            return figures;
        }
    }

    /** Requests for 16 KiB, each on a connection of its own. */
    private static String closing(Bench.Candidate candidate, long nanos) throws Exception {
        try (ServerSocketChannel listener = listen()) {
            long start = System.nanoTime();
            long cpu = Bench.cpu();
            long count = 0;
            while (System.nanoTime() - start < nanos) {
                SSLEngine[] engines = Bench.engines(candidate, true);
                try (Wire client = new Wire(engines[0], SocketChannel.open(listener.getLocalAddress()));
                        Wire server = new Wire(engines[1], listener.accept())) {
                    Thread thread = Thread.ofPlatform().daemon().start(() ->
                            serve(server, REQUEST.length, new byte[][] {HEAD, new byte[16 << 10]}, true));
                    client.handshake();
                    client.write(new byte[][] {REQUEST});
                    client.read(RESPONSE);
                    thread.join();
                }
                Bench.release(engines);
                count++;
            }
            return rate(count, start, cpu);
        }
    }

    private static void serve(Wire server, int asked, byte[][] answer, boolean handshakes) {
        try {
            if (handshakes) {
                server.handshake();
            }
            do {
                server.read(asked);
                server.write(answer);
            } while (!handshakes);
        } catch (EOFException end) {
            // The client has enough.
        } catch (Exception thrown) {
            try {
                server.channel.close();
            } catch (IOException ignored) {
                // The client sees the end in either case.
            }
        }
    }

    private static String rate(long count, long start, long cpu) {
        double seconds = (System.nanoTime() - start) / 1e9;
        return "rate " + count / seconds + " cpu_us " + (Bench.cpu() - cpu) / 1e3 / count;
    }

    private static ServerSocketChannel listen() throws IOException {
        return ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
    }

    private static int length(byte[][] pieces) {
        int length = 0;
        for (byte[] piece : pieces) {
            length += piece.length;
        }
        return length;
    }

    /** An engine over a blocking channel. */
    private static final class Wire implements AutoCloseable {
        final SSLEngine engine;
        final SocketChannel channel;
        final ByteBuffer in = ByteBuffer.allocateDirect(5 * 17_000);
        final ByteBuffer out = ByteBuffer.allocateDirect(5 * 17_000);
        final ByteBuffer plain = ByteBuffer.allocateDirect(5 * 17_000);
        /** Bytes of plaintext that came with the end of the handshake: some engines unwrap several records at once. */
        int early;

        Wire(SSLEngine engine, SocketChannel channel) throws IOException {
            this.engine = engine;
            this.channel = channel;
            channel.setOption(java.net.StandardSocketOptions.TCP_NODELAY, true);
        }

        void handshake() throws Exception {
            engine.beginHandshake();
            plain.clear();
            ByteBuffer nothing = ByteBuffer.allocate(0);
            while (true) {
                switch (engine.getHandshakeStatus()) {
                    case NEED_TASK:
                        for (Runnable task = engine.getDelegatedTask(); task != null;
                                task = engine.getDelegatedTask()) {
                            task.run();
                        }
                        break;
                    case NEED_WRAP:
                        engine.wrap(nothing, out.clear());
                        flush();
                        break;
                    case NEED_UNWRAP:
                    case NEED_UNWRAP_AGAIN:
                        SSLEngineResult result = engine.unwrap(in.flip(), plain);
                        in.compact();
                        if (result.getStatus() == SSLEngineResult.Status.BUFFER_UNDERFLOW) {
                            receive();
                        }
                        break;
                    default:
                        early = plain.position();
                        return;
                }
            }
        }

        /** Writes each piece by itself, and sends all of them together. */
        void write(byte[][] pieces) throws Exception {
            out.clear();
            for (byte[] piece : pieces) {
                ByteBuffer data = ByteBuffer.wrap(piece);
                while (data.hasRemaining()) {
                    if (out.remaining() < 17_000) {
                        flush();
                        out.clear();
                    }
                    engine.wrap(data, out);
                }
            }
            flush();
        }

        private void flush() throws IOException {
            out.flip();
            while (out.hasRemaining()) {
                channel.write(out);
            }
        }

        /** Reads this many bytes of plaintext. */
        void read(int length) throws Exception {
            int left = length - early;
            early = 0;
            while (left > 0) {
                plain.clear();
                SSLEngineResult result = engine.unwrap(in.flip(), plain);
                in.compact();
                left -= plain.position();
                switch (result.getStatus()) {
                    case BUFFER_UNDERFLOW:
                        receive();
                        break;
                    case OK:
                        break;
                    default:
                        throw new EOFException(result.toString());
                }
            }
        }

        private void receive() throws IOException {
            if (channel.read(in) < 0) {
                throw new EOFException("the peer has ended");
            }
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }
}
