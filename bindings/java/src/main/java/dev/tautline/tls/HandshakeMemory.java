package dev.tautline.tls;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * Native memory for one call of a handshake, which may call Java back and so cannot work on Java's heap.
 *
 * <p>There are as many of these as calls have run at the same time. They are used again and never freed.
 */
final class HandshakeMemory implements AutoCloseable {
    /** Room for one record of any length. */
    private static final int IN = 18_440;

    /** Room for one flight, of which a chain of certificates is the longest part. */
    private static final int OUT = 1 << 17;

    private static final ConcurrentLinkedQueue<HandshakeMemory> FREE = new ConcurrentLinkedQueue<>();

    private final MemorySegment io = Arena.global().allocate(8L * Native.IO_WORDS, 8);
    private final MemorySegment in = Arena.global().allocate(IN);
    private final MemorySegment out = Arena.global().allocate(OUT);

    private HandshakeMemory() {
        set(Native.IO_SIZE, 8L * Native.IO_WORDS);
        set(Native.IO_IN, in.address());
        set(Native.IO_OUT, out.address());
        set(Native.IO_OUT + 1, OUT);
    }

    static HandshakeMemory take() {
        HandshakeMemory free = FREE.poll();
        HandshakeMemory memory = free == null ? new HandshakeMemory() : free;
        memory.set(Native.IO_IN + 1, 0);
        return memory;
    }

    /** Copies {@code length} bytes of {@code src} into the input, without a change of its position. */
    void put(ByteBuffer src, int length) {
        MemorySegment.copy(MemorySegment.ofBuffer(src), 0, in, 0, length);
        set(Native.IO_IN + 1, length);
    }

    MemorySegment io() {
        return io;
    }

    int taken() {
        return (int) get(Native.IO_TAKEN);
    }

    int want() {
        return io.get(JAVA_INT, 8L * Native.IO_WANT);
    }

    long waiting() {
        return get(Native.IO_OUT_WAITING);
    }

    /** The bytes for the peer. */
    byte[] written() {
        return out.asSlice(0, get(Native.IO_WRITTEN)).toArray(JAVA_BYTE);
    }

    /** Gives the memory back. */
    @Override
    public void close() {
        FREE.add(this);
    }

    private long get(int word) {
        return io.get(JAVA_LONG, 8L * word);
    }

    private void set(int word, long value) {
        io.set(JAVA_LONG, 8L * word, value);
    }
}
