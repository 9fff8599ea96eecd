package dev.tautline.tls;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import javax.net.ssl.SSLException;

/** A {@code taut_tls_config}, released when nothing refers to it any more. */
final class NativeConfig {
    static final Cleaner CLEANER = Cleaner.create();

    /** Sessions that are not freed. */
    static final AtomicLong SESSIONS = new AtomicLong();

    private final long handle;

    /**
     * Makes and applies a configuration.
     *
     * @throws SSLException if the keys cannot be used; the message says why
     */
    NativeConfig(Settings settings, List<KeyPem> keys) throws SSLException {
        try (Arena arena = Arena.ofConfined()) {
            ErrorDetail error = new ErrorDetail(arena);
            MemorySegment made = arena.allocate(ADDRESS);
            int role = settings.client() ? Native.CLIENT : Native.SERVER;
            check((int) Native.CONFIG_NEW.invokeExact(role, MemorySegment.NULL, made, error.struct()), error);
            long config = made.get(JAVA_LONG, 0);
            handle = config;
            CLEANER.register(this, () -> Native.release(config));
            apply(settings, keys, arena, error);
        } catch (Throwable thrown) {
            throw Native.failure(thrown);
        }
    }

    /**
     * Makes a session.
     *
     * @param host the name or address that a client connects to; null for servers
     */
    long session(String host) throws SSLException {
        try (Arena arena = Arena.ofConfined()) {
            ErrorDetail error = new ErrorDetail(arena);
            MemorySegment made = arena.allocate(ADDRESS);
            MemorySegment name = host == null ? MemorySegment.NULL : arena.allocateFrom(host);
            check((int) Native.TLS_NEW.invokeExact(handle, name, made, error.struct()), error);
            SESSIONS.incrementAndGet();
            return made.get(JAVA_LONG, 0);
        } catch (Throwable thrown) {
            throw Native.failure(thrown);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Frees a session that no call uses. */
    static void free(long session) {
        Native.free(session);
        SESSIONS.decrementAndGet();
    }

    private void apply(Settings settings, List<KeyPem> keys, Arena arena, ErrorDetail error) throws Throwable {
        MemorySegment detail = error.struct();
        for (KeyPem key : keys) {
            MemorySegment struct = arena.allocate(8 * 8, 8);
            struct.set(JAVA_LONG, 0, struct.byteSize());
            slice(struct, 8, key.chain(), arena);
            slice(struct, 24, key.key(), arena);
            struct.set(ADDRESS, 56, arena.allocateFrom(key.name()));
            check((int) Native.CONFIG_CERTIFICATE.invokeExact(handle, struct, detail), error);
        }
        if (!settings.protocols().isEmpty()) {
            MemorySegment names = arena.allocate(16L * settings.protocols().size(), 8);
            for (int i = 0; i < settings.protocols().size(); i++) {
                slice(names, 16L * i, settings.protocols().get(i).getBytes(StandardCharsets.ISO_8859_1), arena);
            }
            long count = settings.protocols().size();
            check((int) Native.CONFIG_ALPN.invokeExact(handle, names, count, detail), error);
        }
        set(Native.OPTION_VERSIONS, settings.versions(), error);
        if (settings.client()) {
            check((int) Native.CONFIG_NO_ROOTS.invokeExact(handle, detail), error);
            set(Native.OPTION_RESUMPTION, settings.resumption() ? 1 : 0, error);
        } else if (settings.demand() > 0) {
            int demand = settings.demand();
            check((int) Native.CONFIG_CLIENT_AUTH.invokeExact(handle, demand, MemorySegment.NULL, 0L, detail), error);
        }
        if (settings.client() || settings.demand() > 0) {
            MemorySegment none = MemorySegment.NULL;
            check((int) Native.CONFIG_VERIFY.invokeExact(handle, Verification.CALLBACK, none, none, detail), error);
        }
        check((int) Native.CONFIG_APPLY.invokeExact(handle, detail), error);
    }

    private void set(int option, long value, ErrorDetail error) throws Throwable {
        check((int) Native.CONFIG_SET.invokeExact(handle, option, value, error.struct()), error);
    }

    /** Writes a {@code taut_slice} at {@code offset}. */
    private static void slice(MemorySegment struct, long offset, byte[] bytes, Arena arena) {
        struct.set(ADDRESS, offset, arena.allocateFrom(JAVA_BYTE, bytes));
        struct.set(JAVA_LONG, offset + 8, bytes.length);
    }

    private static void check(int code, ErrorDetail error) throws SSLException {
        if (code != Native.OK) {
            throw new SSLException(error.text(code));
        }
    }
}
