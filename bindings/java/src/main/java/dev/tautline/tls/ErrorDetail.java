package dev.tautline.tls;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;
import java.nio.charset.StandardCharsets;

/** A {@code taut_error}: the text and the alert of a failed call. */
final class ErrorDetail {
    private static final int BYTES = 40;
    private static final int ROOM = 1024;

    private final MemorySegment struct;
    private final MemorySegment text;

    ErrorDetail(SegmentAllocator arena) {
        text = arena.allocate(ROOM);
        struct = arena.allocate(BYTES, 8);
        struct.set(JAVA_LONG, 0, BYTES);
        struct.set(JAVA_LONG, 8, text.address());
        struct.set(JAVA_LONG, 16, ROOM);
    }

    MemorySegment struct() {
        return struct;
    }

    String text(int code) {
        String own = text.getString(0, StandardCharsets.UTF_8);
        return own.isEmpty() ? Native.text(code) : own;
    }

    /** The TLS alert, or -1 if there is none. */
    int alert() {
        return struct.get(JAVA_INT, 36);
    }

    /** The error that ended a session, with its alert. */
    static String of(long session, int code) {
        try (Arena arena = Arena.ofConfined()) {
            ErrorDetail detail = new ErrorDetail(arena);
            int ignored = (int) Native.ERROR.invokeExact(session, detail.struct());
            String text = detail.text(code);
            return detail.alert() < 0 ? text : text + " (alert " + detail.alert() + ")";
        } catch (Throwable impossible) {
            throw Native.unexpected(impossible);
        }
    }
}
