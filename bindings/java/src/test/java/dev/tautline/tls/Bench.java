package dev.tautline.tls;

import io.netty.buffer.PooledByteBufAllocator;
import io.netty.handler.ssl.OpenSsl;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.BooleanSupplier;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;

/**
 * Measures Tautline's engine beside the JDK's and Netty's on BoringSSL, in rounds that alternate. Each line of its
 * output is a case, an engine, a metric and the median.
 *
 * <p>Arguments: milliseconds of a round, and rounds. With {@code --worker} it measures one round for each line
 * {@code CASE ENGINE MILLISECONDS} of its input, and answers with pairs of a metric and a value: {@code taut bench
 * bindings} chooses the rounds then.
 */
final class Bench {
    private static final int DUPLEX = 32 * 1024;

    private final long nanos;
    private final int rounds;

    Bench(long nanos, int rounds) {
        this.nanos = nanos;
        this.rounds = rounds;
    }

    /** Makes a pair of engines, the client's first. */
    interface Maker {
        SSLEngine[] make(boolean resume) throws Exception;
    }

    record Candidate(String name, Maker maker) {}

    /** One round; the figures of its metrics. */
    private interface Round {
        double[] run(Candidate candidate) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        if (args.length == 1 && args[0].equals("--worker")) {
            BenchWorker.answer(System.in);
            return;
        }
        long millis = args.length > 0 ? Long.parseLong(args[0]) : 300;
        int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 7;
        new Bench(millis * 1_000_000, rounds).all();
    }

    private void all() throws Exception {
        List<Candidate> candidates = candidates();
        for (int length : new int[] {64, 1024, 16_384}) {
            for (boolean direct : new boolean[] {true, false}) {
                String name = "memory-" + length + (direct ? "-direct" : "-heap");
                measure(name, new String[] {"ns"}, candidates, one -> new double[] {memory(one, length, direct)});
            }
        }
        measure("handshake-full", new String[] {"us"}, candidates, one -> new double[] {handshake(one, false)});
        measure("handshake-resumed", new String[] {"us"}, candidates, one -> new double[] {handshake(one, true)});
        measure("duplex-32768", new String[] {"MB/s", "MB/cpu-s"}, candidates, this::duplex);
    }

    static List<Candidate> candidates() throws Exception {
        Certificates keys = Certificates.ec();
        List<Candidate> all = new ArrayList<>();
        for (String whose : new String[] {"ours", "jdks"}) {
            SSLContext[] last = new SSLContext[1];
            all.add(new Candidate(whose.equals("ours") ? "tautline" : "jdk", resume -> {
                if (last[0] == null || !resume) {
                    last[0] = whose.equals("ours") ? keys.fresh() : keys.jdks();
                }
                return new SSLEngine[] {last[0].createSSLEngine("localhost", 443), last[0].createSSLEngine()};
            }));
        }
        if (OpenSsl.isAvailable()) {
            PrivateKey key = (PrivateKey) keys.store.getKey("server", Certificates.PASSWORD);
            X509Certificate certificate = (X509Certificate) keys.store.getCertificate("server");
            SslContext server = SslContextBuilder.forServer(key, certificate).sslProvider(SslProvider.OPENSSL).build();
            SslContext client = SslContextBuilder.forClient().trustManager(certificate)
                    .sslProvider(SslProvider.OPENSSL).build();
            all.add(new Candidate("netty-tcnative", resume -> new SSLEngine[] {
                client.newEngine(PooledByteBufAllocator.DEFAULT, "localhost", resume ? 443 : -1),
                server.newEngine(PooledByteBufAllocator.DEFAULT)}));
        } else {
            System.err.println("missing netty-tcnative: " + OpenSsl.unavailabilityCause());
        }
        return all;
    }

    private void measure(String name, String[] metrics, List<Candidate> candidates, Round round) throws Exception {
        double[][][] figures = new double[candidates.size()][metrics.length][rounds];
        // The first round warms up.
        for (int r = -1; r < rounds; r++) {
            for (int c = 0; c < candidates.size(); c++) {
                double[] got = round.run(candidates.get(c));
                for (int m = 0; r >= 0 && m < metrics.length; m++) {
                    figures[c][m][r] = got[m];
                }
            }
        }
        for (int c = 0; c < candidates.size(); c++) {
            for (int m = 0; m < metrics.length; m++) {
                Arrays.sort(figures[c][m]);
                System.out.printf("%s %s %s %.3f%n", name, candidates.get(c).name(), metrics[m],
                        figures[c][m][rounds / 2]);
            }
        }
    }

    /** The engines of a pair, all with the same version and suite. */
    static SSLEngine[] engines(Candidate candidate, boolean resume) throws Exception {
        SSLEngine[] engines = candidate.maker().make(resume);
        for (SSLEngine engine : engines) {
            SSLParameters parameters = engine.getSSLParameters();
            parameters.setProtocols(new String[] {"TLSv1.3"});
            engine.setSSLParameters(parameters);
        }
        // The suite that all three prefer is not the same, so all get the first of ours where it can be chosen.
        if (!candidate.name().equals("tautline")) {
            engines[0].setEnabledCipherSuites(new String[] {"TLS_AES_128_GCM_SHA256"});
        }
        engines[0].setUseClientMode(true);
        engines[1].setUseClientMode(false);
        return engines;
    }

    static Pair connect(Candidate candidate, boolean resume, boolean direct) throws Exception {
        SSLEngine[] engines = engines(candidate, resume);
        Pair pair = new Pair(engines[0], engines[1], direct);
        pair.handshake();
        if (pair.toClient.position() > 0) {
            // Tickets.
            Pair.receive(pair.client, pair.toClient, ByteBuffer.allocate(20_000));
        }
        return pair;
    }

    /** Nanoseconds of CPU time to wrap and unwrap one piece, with those of the garbage collector. */
    double memory(Candidate candidate, int length, boolean direct) throws Exception {
        Pair pair = connect(candidate, true, direct);
        ByteBuffer data = Pair.allocate(length, direct);
        ByteBuffer plain = Pair.allocate(40_000, direct);
        ByteBuffer wire = Pair.allocate(40_000, direct);
        pass(pair.server, pair.client, data, wire, plain);
        long start = System.nanoTime();
        long cpu = cpu();
        long count = 0;
        do {
            for (int i = 0; i < 64; i++) {
                pass(pair.client, pair.server, data, wire, plain);
            }
            count += 64;
        } while (System.nanoTime() - start < nanos);
        double spent = cpu() - cpu;
        release(pair);
        return spent / count;
    }

    /** Nanoseconds of CPU time that this process has taken. */
    static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    private static void pass(SSLEngine from, SSLEngine to, ByteBuffer data, ByteBuffer wire, ByteBuffer plain)
            throws SSLException {
        data.clear();
        wire.clear();
        while (data.hasRemaining()) {
            SSLEngineResult result = from.wrap(data, wire);
            if (result.getStatus() != SSLEngineResult.Status.OK) {
                throw new IllegalStateException(result.toString());
            }
        }
        wire.flip();
        plain.clear();
        while (wire.hasRemaining()) {
            SSLEngineResult result = to.unwrap(wire, plain);
            if (result.getStatus() != SSLEngineResult.Status.OK) {
                throw new IllegalStateException(result.toString());
            }
        }
        if (plain.position() != data.capacity()) {
            throw new IllegalStateException(plain.position() + " bytes arrived");
        }
    }

    /** Microseconds of both ends' work for a handshake and the server's first message, with the tickets. */
    double handshake(Candidate candidate, boolean resume) throws Exception {
        ByteBuffer plain = ByteBuffer.allocate(20_000);
        release(connect(candidate, false, false));
        long spent = 0;
        int count = 0;
        while (spent < nanos) {
            boolean fresh = !resume && !candidate.name().equals("netty-tcnative");
            if (fresh) {
                // A new context has no session to resume. Its making is not measured.
                for (SSLEngine engine : candidate.maker().make(false)) {
                    engine.closeOutbound();
                }
                warm(candidate);
            }
            long start = System.nanoTime();
            Pair pair = connect(candidate, resume || fresh, false);
            pair.server.wrap(ByteBuffer.allocate(1), pair.toClient);
            Pair.receive(pair.client, pair.toClient, plain.clear());
            spent += System.nanoTime() - start;
            count++;
            release(pair);
        }
        return spent / 1000.0 / count;
    }

    /** Has the context make its native configurations, which it does for the first engines. */
    private static void warm(Candidate candidate) throws Exception {
        SSLEngine[] engines = candidate.maker().make(true);
        for (int i = 0; i < 2; i++) {
            SSLParameters parameters = engines[i].getSSLParameters();
            parameters.setProtocols(new String[] {"TLSv1.3"});
            engines[i].setSSLParameters(parameters);
            engines[i].setUseClientMode(i == 0);
            engines[i].beginHandshake();
            engines[i].closeOutbound();
        }
    }

    static void release(Pair pair) {
        release(new SSLEngine[] {pair.client, pair.server});
    }

    static void release(SSLEngine[] engines) {
        for (SSLEngine engine : engines) {
            engine.closeOutbound();
            if (engine instanceof io.netty.util.ReferenceCounted counted) {
                counted.release();
            }
        }
    }

    /** Both ends write and read at once over TCP, in one thread each: MB that arrive, by second and by CPU second. */
    double[] duplex(Candidate candidate) throws Exception {
        Pair pair = connect(candidate, true, true);
        try (ServerSocketChannel listener = ServerSocketChannel.open()
                .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
                SocketChannel client = SocketChannel.open(listener.getLocalAddress());
                SocketChannel server = listener.accept()) {
            Peer[] peers = {new Peer(pair.client, client), new Peer(pair.server, server)};
            long start = System.nanoTime();
            long cpu = cpu();
            BooleanSupplier goesOn = () -> System.nanoTime() - start < 2 * nanos;
            Thread[] threads = new Thread[peers.length];
            for (int i = 0; i < threads.length; i++) {
                Peer peer = peers[i];
                threads[i] = Thread.ofPlatform().start(() -> peer.run(goesOn));
            }
            for (Thread thread : threads) {
                thread.join();
            }
            double seconds = (System.nanoTime() - start) / 1e9;
            double spent = (cpu() - cpu) / 1e9;
            double megabytes = (peers[0].received + peers[1].received) / 1e6;
            if (peers[0].failed != null || peers[1].failed != null) {
                throw new IllegalStateException(peers[0].failed != null ? peers[0].failed : peers[1].failed);
            }
            release(pair);
            return new double[] {megabytes / seconds, megabytes / spent};
        }
    }

    /** One end of a duplex connection, which writes whenever it can and reads whenever there is something. */
    private static final class Peer {
        final SSLEngine engine;
        final SocketChannel channel;
        long received;
        Throwable failed;

        Peer(SSLEngine engine, SocketChannel channel) {
            this.engine = engine;
            this.channel = channel;
        }

        void run(BooleanSupplier goesOn) {
            ByteBuffer data = ByteBuffer.allocateDirect(DUPLEX);
            ByteBuffer out = ByteBuffer.allocateDirect(3 * 17_000).flip();
            ByteBuffer in = ByteBuffer.allocateDirect(3 * 17_000);
            ByteBuffer plain = ByteBuffer.allocateDirect(DUPLEX);
            try (Selector selector = Selector.open()) {
                channel.configureBlocking(false);
                SelectionKey key = channel.register(selector, SelectionKey.OP_READ);
                while (goesOn.getAsBoolean()) {
                    if (!out.hasRemaining()) {
                        out.clear();
                        data.clear();
                        while (data.hasRemaining()) {
                            engine.wrap(data, out);
                        }
                        out.flip();
                    }
                    int written = channel.write(out);
                    int read = channel.read(in);
                    if (written == 0 && read == 0) {
                        // A loop without a wait would count the same CPU time for every engine.
                        key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                        selector.select(100);
                        selector.selectedKeys().clear();
                    }
                    if (read > 0) {
                        in.flip();
                        SSLEngineResult result;
                        do {
                            result = engine.unwrap(in, plain);
                            received += result.bytesProduced();
                            plain.clear();
                        } while (result.getStatus() == SSLEngineResult.Status.OK && in.hasRemaining());
                        in.compact();
                    }
                }
            } catch (Throwable thrown) {
                failed = thrown;
            }
        }
    }
}
