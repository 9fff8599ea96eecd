package dev.tautline.tls;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.function.BiFunction;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLEngineResult;
import javax.net.ssl.SSLEngineResult.HandshakeStatus;
import javax.net.ssl.SSLEngineResult.Status;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSession;

/**
 * An engine over a {@code taut_tls}. Each {@code wrap} and each {@code unwrap} is at most one call of the library, but
 * for errors and the end of the handshake.
 *
 * <p>Bytes for the peer that an {@code unwrap} causes lie in {@link #pending} until the next {@code wrap}. All methods
 * hold {@link #lock}, so threads may call any of them at any time.
 */
final class TautlineEngine extends SSLEngine {
    private static final ByteBuffer EMPTY = ByteBuffer.allocate(0);
    private static final int HEADER = 5;

    /** Most bytes that sealing adds to one record, with a KeyUpdate in front. */
    private static final int SEALED_MORE = 30 + 64;

    /** Longest body of a record in any version. */
    private static final int MOST_BODY = 18_432;

    private static final byte INTERNAL_ERROR = 80;
    private static final byte UNRECOGNIZED_NAME = 112;
    private static final byte NO_APPLICATION_PROTOCOL = 120;

    /** Whether a close_notify of the peer is answered in TLS 1.3 too, as in the JDK's engine. */
    private static final boolean ACKNOWLEDGE_CLOSE = Boolean.getBoolean("jdk.tls.acknowledgeCloseNotify");

    /** Answers that may wait because the program does not wrap. A peer that causes more is misbehaving. */
    private static final int MOST_PENDING = 1 << 16;

    private enum Stage { NEW, HANDSHAKING, OPEN, FAILED }

    private final Object lock = new Object();
    private final TautlineContext context;
    private final Parameters parameters;
    private final long[] io = new long[Native.IO_WORDS];
    private final MemorySegment ioSegment = MemorySegment.ofArray(io);
    private Stage stage = Stage.NEW;
    /** A {@code taut_tls}; 0 before the handshake and after the end. */
    private long session;
    private Cleaner.Cleanable cleanable;
    private ClientHello.Collector hello;
    /** Bytes for the peer, from {@link #pendingFrom} on. */
    private byte[] pending = {};
    private int pendingFrom;
    private boolean finishedDue;
    private boolean inboundDone;
    private boolean outboundClosed;
    /** Fewest bytes that a record is longer than its content. */
    private int overhead;
    private boolean tls13;
    private String protocol;
    /** The session under negotiation. */
    private TautlineSession facts;
    private volatile TautlineSession established;
    private Throwable rejection;

    TautlineEngine(TautlineContext context, String host, int port, List<String> protocols) {
        super(host, port);
        this.context = context;
        parameters = new Parameters(protocols);
        established = new TautlineSession(host, port, null);
        io[Native.IO_SIZE] = 8L * Native.IO_WORDS;
        io[Native.IO_MAX_RECORDS] = 1;
    }

    // Data

    @Override
    public SSLEngineResult wrap(ByteBuffer src, ByteBuffer dst) throws SSLException {
        requirePresent(src, "src");
        checkWritable(dst);
        synchronized (lock) {
            SSLEngineResult early = beforeWrap(dst);
            return early == null ? seal(src, dst) : early;
        }
    }

    @Override
    public SSLEngineResult wrap(ByteBuffer[] srcs, int offset, int length, ByteBuffer dst) throws SSLException {
        checkArray(srcs, offset, length);
        checkWritable(dst);
        synchronized (lock) {
            SSLEngineResult early = beforeWrap(dst);
            if (early != null) {
                return early;
            }
            ByteBuffer only = only(srcs, offset, length);
            if (only != null) {
                return seal(only, dst);
            }
            ByteBuffer whole = gather(srcs, offset, length, dst.remaining());
            SSLEngineResult result = seal(whole, dst);
            take(srcs, offset, result.bytesConsumed());
            return result;
        }
    }

    @Override
    public SSLEngineResult unwrap(ByteBuffer src, ByteBuffer dst) throws SSLException {
        requirePresent(src, "src");
        checkWritable(dst);
        synchronized (lock) {
            int record = recordLength(src);
            SSLEngineResult early = beforeUnwrap(src, record, dst.remaining());
            return early == null ? open(src, record, dst) : early;
        }
    }

    @Override
    public SSLEngineResult unwrap(ByteBuffer src, ByteBuffer[] dsts, int offset, int length) throws SSLException {
        requirePresent(src, "src");
        checkArray(dsts, offset, length);
        long room = 0;
        for (int i = offset; i < offset + length; i++) {
            checkWritable(dsts[i]);
            room += dsts[i].remaining();
        }
        synchronized (lock) {
            int record = recordLength(src);
            SSLEngineResult early = beforeUnwrap(src, record, (int) Math.min(room, Integer.MAX_VALUE));
            if (early != null) {
                return early;
            }
            ByteBuffer only = only(dsts, offset, length);
            if (only != null) {
                return open(src, record, only);
            }
            ByteBuffer whole = ByteBuffer.allocate((int) Math.min(room, TautlineSession.MOST_PLAIN));
            SSLEngineResult result = open(src, record, whole);
            whole.flip();
            for (int i = offset; whole.hasRemaining(); i++) {
                int part = Math.min(dsts[i].remaining(), whole.remaining());
                dsts[i].put(whole.slice(whole.position(), part));
                whole.position(whole.position() + part);
            }
            return result;
        }
    }

    /** Does what comes before data: starts, drains, ends. Null if data may be sealed. */
    private SSLEngineResult beforeWrap(ByteBuffer dst) throws SSLException {
        if (stage == Stage.OPEN && pending.length == 0 && !outboundClosed) {
            return null;
        }
        if (stage == Stage.NEW && !outboundClosed) {
            start();
        }
        if (pending.length > 0) {
            return drain(dst);
        }
        // A handshake whose peer has closed does not go on.
        boolean over = outboundClosed || inboundDone && stage != Stage.OPEN;
        return result(over ? Status.CLOSED : Status.OK, 0, 0);
    }

    /** Moves pending bytes to {@code dst}, in pieces of a record's length or more. */
    private SSLEngineResult drain(ByteBuffer dst) {
        int waiting = pending.length - pendingFrom;
        if (dst.remaining() < Math.min(waiting, TautlineSession.USUAL_RECORD)) {
            return result(Status.BUFFER_OVERFLOW, 0, 0);
        }
        int now = Math.min(waiting, dst.remaining());
        dst.put(pending, pendingFrom, now);
        pendingFrom += now;
        if (now == waiting) {
            pending = EMPTY.array();
            pendingFrom = 0;
            freeIfDone();
        }
        return result(isOutboundDone() ? Status.CLOSED : Status.OK, 0, now);
    }

    private SSLEngineResult seal(ByteBuffer src, ByteBuffer dst) throws SSLException {
        int room = dst.remaining();
        int length = src.remaining();
        if (length == 0) {
            return result(Status.OK, 0, 0);
        }
        int first = Math.min(length, TautlineSession.MOST_PLAIN);
        if (room < first + SEALED_MORE) {
            return result(Status.BUFFER_OVERFLOW, 0, 0);
        }
        if (length > first) {
            // As many whole records as there is room for, and the rest if it fits too.
            int records = room / (TautlineSession.MOST_PLAIN + SEALED_MORE);
            length = Math.min(length, Math.max(records * TautlineSession.MOST_PLAIN, first));
        }
        MemorySegment data = MemorySegment.ofBuffer(src);
        MemorySegment out = MemorySegment.ofBuffer(dst);
        int code;
        try {
            code = (int) Native.SEAL_INTO.invokeExact(session, data, (long) length, out, (long) room, ioSegment);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
        if (code != Native.OK) {
            throw failed(code);
        }
        int taken = (int) io[Native.IO_TAKEN];
        int written = (int) io[Native.IO_WRITTEN];
        src.position(src.position() + taken);
        dst.position(dst.position() + written);
        return result(Status.OK, taken, written);
    }

    /** Does what comes before data: starts, handshakes, waits. Null if a record may be opened. */
    private SSLEngineResult beforeUnwrap(ByteBuffer src, int record, int room) throws SSLException {
        if (stage == Stage.NEW && !inboundDone) {
            start();
        }
        if (inboundDone) {
            return result(Status.CLOSED, 0, 0);
        }
        if (stage == Stage.HANDSHAKING && pending.length > 0) {
            return result(Status.OK, 0, 0);
        }
        if (record > TautlineSession.USUAL_RECORD) {
            established.expectRecord(record);
        }
        if (stage == Stage.OPEN && record > 0 && record - overhead > room && src.get(src.position()) == 23) {
            return result(Status.BUFFER_OVERFLOW, 0, 0);
        }
        if (record == 0 || record > src.remaining()) {
            return result(Status.BUFFER_UNDERFLOW, 0, 0);
        }
        return stage == Stage.HANDSHAKING ? handshake(src, record < 0 ? src.remaining() : record) : null;
    }

    private SSLEngineResult open(ByteBuffer src, int record, ByteBuffer dst) throws SSLException {
        int length = record < 0 ? src.remaining() : record;
        MemorySegment in = MemorySegment.ofBuffer(src);
        if (src.isReadOnly()) {
            // The library opens records where they are.
            in = MemorySegment.ofArray(in.asSlice(0, length).toArray(JAVA_BYTE));
        }
        MemorySegment plain = MemorySegment.ofBuffer(dst);
        int code;
        try {
            code = (int) Native.OPEN_INTO.invokeExact(
                    session, in, (long) length, plain, (long) dst.remaining(), ioSegment);
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
        if (code != Native.OK) {
            throw failed(code);
        }
        int taken = (int) io[Native.IO_TAKEN];
        int opened = (int) io[Native.IO_PLAIN_LEN];
        src.position(src.position() + taken);
        dst.position(dst.position() + opened);
        if (io[Native.IO_OUT_WAITING] > 0) {
            drainLibrary();
            if (pending.length > MOST_PENDING) {
                throw end(new SSLException("the peer causes more answers than the program sends"));
            }
        }
        if ((int) io[Native.IO_WANT] == Native.WANT_CLOSED) {
            inboundDone = true;
            if (!tls13 || ACKNOWLEDGE_CLOSE) {
                closeNow();
            }
            freeIfDone();
            return result(Status.CLOSED, taken, opened);
        }
        return result(Status.OK, taken, opened);
    }

    /** The length of the record at the front of {@code src}: 0 if its header is not whole, -1 if it is no record. */
    private static int recordLength(ByteBuffer src) {
        if (src.remaining() < HEADER) {
            return 0;
        }
        int at = src.position();
        int kind = src.get(at);
        int body = (src.get(at + 3) & 0xFF) << 8 | src.get(at + 4) & 0xFF;
        boolean plausible = kind >= 20 && kind <= 24 && src.get(at + 1) == 3 && body <= MOST_BODY
                && (body > 0 || kind == 23);
        return plausible ? HEADER + body : -1;
    }

    // Handshake

    @Override
    public void beginHandshake() throws SSLException {
        synchronized (lock) {
            switch (stage) {
                case NEW -> {
                    if (outboundClosed || inboundDone) {
                        throw new SSLException("the engine is closed");
                    }
                    start();
                }
                case OPEN -> updateKeys();
                case FAILED -> throw new SSLException("the connection has failed before");
                default -> { }
            }
        }
    }

    /** Makes the session, or collects a ClientHello before. */
    private void start() throws SSLException {
        if (!parameters.modeSet) {
            throw new IllegalStateException("Client/Server mode has not yet been set: call setUseClientMode");
        }
        stage = Stage.HANDSHAKING;
        facts = new TautlineSession(
                getPeerHost(), getPeerPort(), parameters.client ? null : context.serverChain());
        List<SNIServerName> asked = parameters.client ? parameters.names() : List.of();
        facts.begin(parameters.protocols.contains("TLSv1.3") ? "TLSv1.3" : "TLSv1.2", asked);
        try {
            if (parameters.client) {
                open(parameters.applicationProtocols, parameters.host(getPeerHost()));
                handshake(EMPTY, 0);
            } else if (parameters.needsHello()) {
                hello = new ClientHello.Collector();
            } else {
                open(parameters.applicationProtocols, null);
            }
        } catch (SSLException failed) {
            throw end(failed);
        }
    }

    private void open(List<String> protocols, String host) throws SSLException {
        String name = host == null && parameters.client ? "0.0.0.0" : host;
        session = context.config(parameters.settings(protocols, host, getPeerPort(), context)).session(name);
        long made = session;
        cleanable = NativeConfig.CLEANER.register(this, () -> NativeConfig.free(made));
    }

    private SSLEngineResult handshake(ByteBuffer src, int length) throws SSLException {
        int taken = length;
        if (hello == null) {
            taken = handshakeStep(src, length);
        } else if (!hello.add(src.slice(src.position(), length))) {
            greet();
        }
        src.position(src.position() + taken);
        return result(Status.OK, taken, 0);
    }

    /** Starts a server's handshake with what a whole ClientHello asks for. */
    private void greet() throws SSLException {
        ClientHello asked = hello.parse();
        ByteBuffer records = hello.records();
        hello = null;
        facts.request(asked.names());
        boolean accepted;
        List<String> protocols;
        try {
            accepted = parameters.accepts(asked.names());
            protocols = accepted ? parameters.choose(asked.protocols(), this) : null;
        } catch (RuntimeException thrown) {
            throw refuse(INTERNAL_ERROR, "an SNIMatcher or the selector of application protocols failed", thrown);
        }
        if (!accepted) {
            throw refuse(UNRECOGNIZED_NAME, "no SNIMatcher accepts the name that the client asks for", null);
        }
        if (protocols == null) {
            throw refuse(NO_APPLICATION_PROTOCOL, "no application protocol of the client's is selected", null);
        }
        try {
            open(protocols, null);
        } catch (SSLException failed) {
            throw end(failed);
        }
        while (records.hasRemaining()) {
            int record = recordLength(records);
            records.position(records.position() + handshakeStep(records, record));
        }
    }

    /** One call of the library over {@code length} bytes of {@code src}; returns how many were used. */
    private int handshakeStep(ByteBuffer src, int length) throws SSLException {
        try (HandshakeMemory memory = HandshakeMemory.take()) {
            memory.put(src, length);
            int code;
            Verification.enter(this);
            try {
                code = (int) Native.HANDSHAKE.invokeExact(session, memory.io());
            } finally {
                Verification.enter(null);
            }
            push(memory.written());
            if (code != Native.OK) {
                throw failed(code);
            }
            if (memory.want() == Native.WANT_NONE) {
                complete();
            } else if (memory.want() == Native.WANT_WRITE) {
                throw end(new SSLHandshakeException("the certificates are too long to be sent"));
            }
            return memory.taken();
        } catch (Throwable thrown) {
            throw Native.failure(thrown);
        }
    }

    /** Reads the facts of a complete handshake. */
    private void complete() throws SSLException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment read = arena.allocate(Native.FACTS_BYTES, 8);
            read.set(JAVA_LONG, 0, Native.FACTS_BYTES);
            int code = (int) Native.GET_FACTS.invokeExact(session, read);
            if (code != Native.OK) {
                throw failed(code);
            }
            String version = read.getString(Native.FACTS_VERSION);
            String suite = read.getString(Native.FACTS_SUITE);
            tls13 = version.equals("TLSv1.3");
            overhead = tls13 ? HEADER + 1 + 16 : suite.contains("GCM") ? HEADER + 8 + 16 : HEADER + 16;
            byte[] name = read.asSlice(Native.FACTS_ALPN, read.get(JAVA_LONG, Native.FACTS_ALPN_LEN)).toArray(JAVA_BYTE);
            protocol = new String(name, StandardCharsets.ISO_8859_1);
            if (!parameters.suites.contains(suite)) {
                throw end(new SSLHandshakeException("the peers agreed on " + suite + ", which setEnabledCipherSuites"
                        + " has turned off"));
            }
            String sni = read.getString(Native.FACTS_SERVER_NAME);
            if (!parameters.client && !sni.isEmpty()) {
                facts.request(List.of(new SNIHostName(sni)));
            }
            boolean resumed = read.get(ValueLayout.JAVA_INT, Native.FACTS_RESUMED) != 0;
            establish(version, suite, resumed);
            if (resumed || !parameters.client && parameters.demand() > 0) {
                facts.showPeer(peerCertificates(read.get(JAVA_LONG, Native.FACTS_PEER_CERTIFICATES), arena));
            }
        } catch (Throwable thrown) {
            throw Native.failure(thrown);
        }
        stage = Stage.OPEN;
        finishedDue = true;
    }

    private void establish(String version, String suite, boolean resumed) {
        Sessions known = context.sessions(parameters.client);
        String peer = parameters.client && getPeerHost() != null ? getPeerHost() + ":" + getPeerPort() : null;
        facts.establish(known, version, suite, resumed && peer != null ? known.with(peer) : null);
        known.add(facts, peer);
        facts.expectRecord(established.getPacketBufferSize());
        established = facts;
    }

    private byte[][] peerCertificates(long count, Arena arena) throws Throwable {
        byte[][] chain = new byte[Math.toIntExact(count)][];
        MemorySegment length = arena.allocate(JAVA_LONG);
        for (int i = 0; i < chain.length; i++) {
            long number = i;
            int ignored = (int) Native.PEER_CERTIFICATE.invokeExact(
                    session, number, MemorySegment.NULL, 0L, length);
            MemorySegment der = arena.allocate(length.get(JAVA_LONG, 0));
            int code = (int) Native.PEER_CERTIFICATE.invokeExact(session, number, der, der.byteSize(), length);
            if (code != Native.OK) {
                throw failed(code);
            }
            chain[i] = der.toArray(JAVA_BYTE);
        }
        return chain;
    }

    /** Decides about a peer's certificates, during a call of the handshake. */
    void verify(X509Certificate[] chain) throws CertificateException {
        facts.showPeer(chain);
        Verification.check(context.trust(), chain, this);
    }

    /** Notes why {@link #verify} failed. */
    void rejected(Throwable reason) {
        rejection = reason;
    }

    // Ends

    @Override
    public void closeInbound() throws SSLException {
        synchronized (lock) {
            if (inboundDone) {
                return;
            }
            inboundDone = true;
            if (stage == Stage.NEW) {
                return;
            }
            if (stage == Stage.HANDSHAKING) {
                closeNow();
            }
            freeIfDone();
            throw new SSLException("closing inbound before receiving peer's close_notify: data may be missing");
        }
    }

    @Override
    public void closeOutbound() {
        synchronized (lock) {
            if (stage != Stage.OPEN) {
                // Without a handshake nothing can be received either.
                inboundDone = true;
            }
            closeNow();
            freeIfDone();
        }
    }

    /** Queues close_notify, once. */
    private void closeNow() {
        if (outboundClosed) {
            return;
        }
        outboundClosed = true;
        if (session == 0) {
            return;
        }
        try (HandshakeMemory memory = HandshakeMemory.take()) {
            int ignored = (int) Native.CLOSE.invokeExact(session, memory.io());
            push(memory.written());
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private void updateKeys() throws SSLException {
        if (!tls13) {
            throw new SSLException("TLS 1.2 connections are not renegotiated");
        }
        try (HandshakeMemory memory = HandshakeMemory.take()) {
            int code = (int) Native.KEY_UPDATE.invokeExact(session, 1, memory.io());
            push(memory.written());
            if (code != Native.OK) {
                throw failed(code);
            }
        } catch (Throwable thrown) {
            throw Native.failure(thrown);
        }
    }

    /** Moves what the library has for the peer to {@link #pending}, such as an alert or the answer to a KeyUpdate. */
    private void drainLibrary() {
        try (HandshakeMemory memory = HandshakeMemory.take()) {
            // The code repeats an error that is known.
            int ignored = (int) Native.OPEN.invokeExact(session, memory.io());
            push(memory.written());
        } catch (Throwable thrown) {
            throw Native.unexpected(thrown);
        }
    }

    private void push(byte[] bytes) {
        if (bytes.length == 0) {
            return;
        }
        byte[] longer = Arrays.copyOfRange(pending, pendingFrom, pending.length + bytes.length);
        System.arraycopy(bytes, 0, longer, longer.length - bytes.length, bytes.length);
        pending = longer;
        pendingFrom = 0;
    }

    /** The exception for an error of the library, which has ended the session unless the call was wrong. */
    private RuntimeException misuse(int code) {
        return code == Native.ERR_OVERLAP
                ? new IllegalArgumentException("src and dst share memory")
                : new IllegalStateException(Native.text(code));
    }

    private SSLException failed(int code) {
        if (code < Native.ERR_FAILED) {
            throw misuse(code);
        }
        String text = ErrorDetail.of(session, code);
        drainLibrary();
        SSLException exception = stage == Stage.HANDSHAKING ? new SSLHandshakeException(text) : new SSLException(text);
        if (rejection != null) {
            exception.initCause(rejection);
        }
        return end(exception);
    }

    /** Fails a handshake that the library has not begun. */
    private SSLException refuse(byte alert, String why, RuntimeException cause) {
        push(new byte[] {21, 3, 3, 0, 2, 2, alert});
        return end(new SSLHandshakeException(why, cause));
    }

    /** Ends the connection. What is pending can still be sent. */
    private SSLException end(SSLException why) {
        stage = Stage.FAILED;
        inboundDone = true;
        outboundClosed = true;
        freeIfDone();
        return why;
    }

    /** Frees the session if no call needs it any more. */
    private void freeIfDone() {
        if (inboundDone && outboundClosed && session != 0) {
            session = 0;
            cleanable.clean();
        }
    }

    // State

    private SSLEngineResult result(Status status, int consumed, int produced) {
        HandshakeStatus handshake = getHandshakeStatus();
        if (finishedDue && pending.length == 0) {
            finishedDue = false;
            handshake = HandshakeStatus.FINISHED;
        }
        return new SSLEngineResult(status, handshake, consumed, produced);
    }

    @Override
    public HandshakeStatus getHandshakeStatus() {
        synchronized (lock) {
            if (pending.length > 0) {
                return HandshakeStatus.NEED_WRAP;
            }
            if (stage == Stage.NEW || inboundDone && outboundClosed) {
                return HandshakeStatus.NOT_HANDSHAKING;
            }
            if (inboundDone) {
                // As with the JDK's engine, an open direction of data needs no more handshake.
                return stage == Stage.OPEN ? HandshakeStatus.NOT_HANDSHAKING : HandshakeStatus.NEED_WRAP;
            }
            return stage == Stage.HANDSHAKING || outboundClosed
                    ? HandshakeStatus.NEED_UNWRAP
                    : HandshakeStatus.NOT_HANDSHAKING;
        }
    }

    @Override
    public boolean isInboundDone() {
        synchronized (lock) {
            return inboundDone;
        }
    }

    @Override
    public boolean isOutboundDone() {
        synchronized (lock) {
            return outboundClosed && pending.length == 0;
        }
    }

    /** Always null: no part of a handshake takes long enough to be left to another thread. */
    @Override
    public Runnable getDelegatedTask() {
        return null;
    }

    @Override
    public SSLSession getSession() {
        return established;
    }

    @Override
    public SSLSession getHandshakeSession() {
        synchronized (lock) {
            return stage == Stage.HANDSHAKING ? facts : null;
        }
    }

    @Override
    public String getApplicationProtocol() {
        synchronized (lock) {
            return protocol;
        }
    }

    @Override
    public String getHandshakeApplicationProtocol() {
        return null;
    }

    // Parameters

    @Override
    public void setUseClientMode(boolean client) {
        synchronized (lock) {
            if (stage != Stage.NEW) {
                throw new IllegalArgumentException("the mode cannot change after the handshake has begun");
            }
            parameters.client = client;
            parameters.modeSet = true;
        }
    }

    @Override
    public boolean getUseClientMode() {
        synchronized (lock) {
            return parameters.client;
        }
    }

    @Override
    public SSLParameters getSSLParameters() {
        synchronized (lock) {
            return parameters.get();
        }
    }

    @Override
    public void setSSLParameters(SSLParameters given) {
        synchronized (lock) {
            parameters.set(given);
        }
    }

    @Override
    public void setHandshakeApplicationProtocolSelector(BiFunction<SSLEngine, List<String>, String> selector) {
        synchronized (lock) {
            parameters.selector = selector;
        }
    }

    @Override
    public BiFunction<SSLEngine, List<String>, String> getHandshakeApplicationProtocolSelector() {
        synchronized (lock) {
            return parameters.selector;
        }
    }

    @Override
    public String[] getSupportedCipherSuites() {
        return TautlineContext.SUITES.toArray(new String[0]);
    }

    @Override
    public String[] getEnabledCipherSuites() {
        synchronized (lock) {
            return parameters.suites.toArray(new String[0]);
        }
    }

    @Override
    public void setEnabledCipherSuites(String[] suites) {
        synchronized (lock) {
            parameters.suites = Parameters.suites(suites);
        }
    }

    @Override
    public String[] getSupportedProtocols() {
        return TautlineContext.PROTOCOLS.toArray(new String[0]);
    }

    @Override
    public String[] getEnabledProtocols() {
        synchronized (lock) {
            return parameters.protocols.toArray(new String[0]);
        }
    }

    @Override
    public void setEnabledProtocols(String[] protocols) {
        synchronized (lock) {
            parameters.protocols = Parameters.protocols(protocols);
        }
    }

    @Override
    public void setNeedClientAuth(boolean need) {
        synchronized (lock) {
            parameters.need = need;
            parameters.want = false;
        }
    }

    @Override
    public boolean getNeedClientAuth() {
        synchronized (lock) {
            return parameters.need;
        }
    }

    @Override
    public void setWantClientAuth(boolean want) {
        synchronized (lock) {
            parameters.want = want;
            parameters.need = false;
        }
    }

    @Override
    public boolean getWantClientAuth() {
        synchronized (lock) {
            return parameters.want;
        }
    }

    @Override
    public void setEnableSessionCreation(boolean enabled) {
        if (!enabled) {
            throw new UnsupportedOperationException("each connection may make a session; this cannot be turned off");
        }
    }

    @Override
    public boolean getEnableSessionCreation() {
        return true;
    }

    // Buffers

    /** SSLEngine documents this exception for a null buffer. */
    private static void requirePresent(Object buffer, String name) {
        if (buffer == null) {
            throw new IllegalArgumentException(name + " is null");
        }
    }

    private static void checkWritable(ByteBuffer dst) {
        requirePresent(dst, "dst");
        if (dst.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
    }

    private static void checkArray(ByteBuffer[] buffers, int offset, int length) {
        requirePresent(buffers, "buffers");
        Objects.checkFromIndexSize(offset, length, buffers.length);
        for (int i = offset; i < offset + length; i++) {
            requirePresent(buffers[i], "a buffer of the array");
        }
    }

    /** The buffer that alone has bytes or room; null if there are several. An empty one if none has. */
    private static ByteBuffer only(ByteBuffer[] buffers, int offset, int length) {
        ByteBuffer only = null;
        for (int i = offset; i < offset + length; i++) {
            if (buffers[i].hasRemaining()) {
                if (only != null) {
                    return null;
                }
                only = buffers[i];
            }
        }
        return only == null ? EMPTY : only;
    }

    /** A copy of what several buffers have, as much as {@code room} takes. */
    private static ByteBuffer gather(ByteBuffer[] srcs, int offset, int length, int room) {
        long all = 0;
        for (int i = offset; i < offset + length; i++) {
            all += srcs[i].remaining();
        }
        ByteBuffer whole = ByteBuffer.allocate((int) Math.min(all, Math.max(room, TautlineSession.MOST_PLAIN)));
        for (int i = offset; i < offset + length && whole.hasRemaining(); i++) {
            int part = Math.min(srcs[i].remaining(), whole.remaining());
            whole.put(srcs[i].slice(srcs[i].position(), part));
        }
        return whole.flip();
    }

    private static void take(ByteBuffer[] srcs, int offset, int taken) {
        int left = taken;
        for (int i = offset; left > 0; i++) {
            int part = Math.min(srcs[i].remaining(), left);
            srcs[i].position(srcs[i].position() + part);
            left -= part;
        }
    }
}
