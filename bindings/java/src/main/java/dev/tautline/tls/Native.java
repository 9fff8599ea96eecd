package dev.tautline.tls;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import javax.net.ssl.SSLException;

/** The functions of {@code libtautline} and the layout of its structs, as in {@code tautline.h}. */
final class Native {
    static final int OK = 0;
    static final int ERR_OVERLAP = 3;
    /** This code and all above are the end of a session. */
    static final int ERR_FAILED = 7;

    static final int CLIENT = 0;
    static final int SERVER = 1;

    static final int WANT_NONE = 0;
    static final int WANT_WRITE = 2;
    static final int WANT_CLOSED = 4;

    static final int OPTION_VERSIONS = 1;
    static final int OPTION_RESUMPTION = 6;
    static final int ACCEPT = 1;
    static final int REJECT = 2;

    /** Words of a {@code taut_tls_io}, each of 8 bytes, and the numbers of those that are used. */
    static final int IO_WORDS = 18;
    static final int IO_SIZE = 0;
    static final int IO_IN = 1;
    static final int IO_OUT = 5;
    static final int IO_MAX_RECORDS = 9;
    static final int IO_TAKEN = 10;
    static final int IO_WRITTEN = 11;
    static final int IO_PLAIN_LEN = 13;
    static final int IO_WANT = 15;
    static final int IO_OUT_WAITING = 17;

    /** Bytes of a {@code taut_tls_facts}, and the offsets of its fields. */
    static final int FACTS_BYTES = 656;
    static final int FACTS_VERSION = 8;
    static final int FACTS_SUITE = 24;
    static final int FACTS_SERVER_NAME = 120;
    static final int FACTS_ALPN = 376;
    static final int FACTS_ALPN_LEN = 632;
    static final int FACTS_PEER_CERTIFICATES = 640;
    static final int FACTS_RESUMED = 648;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = open();

    static final MethodHandle CONFIG_NEW = find("taut_tls_config_new", JAVA_INT, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle CONFIG_CERTIFICATE = find("taut_tls_config_certificate", JAVA_LONG, ADDRESS, ADDRESS);
    static final MethodHandle CONFIG_NO_ROOTS = find("taut_tls_config_danger_no_roots", JAVA_LONG, ADDRESS);
    static final MethodHandle CONFIG_CLIENT_AUTH =
            find("taut_tls_config_client_auth", JAVA_LONG, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS);
    static final MethodHandle CONFIG_ALPN = find("taut_tls_config_alpn", JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);
    static final MethodHandle CONFIG_SET = find("taut_tls_config_set", JAVA_LONG, JAVA_INT, JAVA_LONG, ADDRESS);
    static final MethodHandle CONFIG_VERIFY =
            find("taut_tls_config_verify", JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle CONFIG_APPLY = find("taut_tls_config_apply", JAVA_LONG, ADDRESS);
    static final MethodHandle TLS_NEW = find("taut_tls_new", JAVA_LONG, ADDRESS, ADDRESS, ADDRESS);
    static final MethodHandle HANDSHAKE = find("taut_tls_handshake", JAVA_LONG, ADDRESS);
    static final MethodHandle CLOSE = find("taut_tls_close", JAVA_LONG, ADDRESS);
    static final MethodHandle KEY_UPDATE = find("taut_tls_key_update", JAVA_LONG, JAVA_INT, ADDRESS);
    static final MethodHandle OPEN = find("taut_tls_open", JAVA_LONG, ADDRESS);
    static final MethodHandle ERROR = find("taut_tls_error", JAVA_LONG, ADDRESS);
    static final MethodHandle GET_FACTS = find("taut_tls_get_facts", JAVA_LONG, ADDRESS);
    static final MethodHandle PEER_CERTIFICATE =
            find("taut_tls_peer_certificate", JAVA_LONG, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);

    /**
     * The calls for data. They are short and call nothing back, so the thread need not leave Java's state. That lets
     * them work on arrays of Java's heap, which cannot move during the call.
     */
    static final MethodHandle OPEN_INTO =
            findCritical("taut_tls_open_into", JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);
    static final MethodHandle SEAL_INTO =
            findCritical("taut_tls_seal_into", JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);

    private static final MethodHandle CONFIG_RELEASE = LINKER.downcallHandle(
            symbol("taut_tls_config_release"), FunctionDescriptor.ofVoid(JAVA_LONG));
    private static final MethodHandle TLS_FREE = find("taut_tls_free", JAVA_LONG);
    private static final MethodHandle CODE_TEXT = LINKER.downcallHandle(
            symbol("taut_code_text"), FunctionDescriptor.of(ADDRESS, JAVA_INT));

    private Native() {}

    /** Gives a reference to a configuration back. */
    static void release(long config) {
        try {
            CONFIG_RELEASE.invokeExact(config);
        } catch (Throwable impossible) {
            throw unexpected(impossible);
        }
    }

    /** Frees a session that no call uses. */
    static void free(long session) {
        try {
            int ignored = (int) TLS_FREE.invokeExact(session);
        } catch (Throwable impossible) {
            throw unexpected(impossible);
        }
    }

    /** The library's explanation of a code. */
    static String text(int code) {
        try {
            MemorySegment text = (MemorySegment) CODE_TEXT.invokeExact(code);
            return text.reinterpret(Long.MAX_VALUE).getString(0, StandardCharsets.UTF_8);
        } catch (Throwable impossible) {
            throw unexpected(impossible);
        }
    }

    /** What to throw for a throwable of a call that declares none. */
    static RuntimeException unexpected(Throwable thrown) {
        if (thrown instanceof Error error) {
            throw error;
        }
        return thrown instanceof RuntimeException exception ? exception : new IllegalStateException(thrown);
    }

    /** What to throw for a throwable of calls that also throw {@link SSLException}s of our own. */
    static SSLException failure(Throwable thrown) {
        if (thrown instanceof SSLException exception) {
            return exception;
        }
        throw unexpected(thrown);
    }

    private static SymbolLookup open() {
        String path = System.getProperty("tautline.library", System.getenv("TAUTLINE_LIBRARY"));
        try {
            return path == null
                    ? SymbolLookup.libraryLookup("libtautline.so.0", Arena.global())
                    : SymbolLookup.libraryLookup(Path.of(path), Arena.global());
        } catch (IllegalArgumentException missing) {
            String place = path == null ? "libtautline.so.0 is not on the system's library path" : path;
            throw new UnsatisfiedLinkError("the library cannot be loaded: " + place
                    + ". Install it with `cargo xtask c-library --prefix DIR`, and name the file in the system"
                    + " property tautline.library or the environment variable TAUTLINE_LIBRARY");
        }
    }

    private static MemorySegment symbol(String name) {
        return LIBRARY.find(name).orElseThrow(() -> new UnsatisfiedLinkError(
                "libtautline has no function " + name + ": install the version that belongs to this package"));
    }

    private static MethodHandle find(String name, MemoryLayout... arguments) {
        return LINKER.downcallHandle(symbol(name), FunctionDescriptor.of(JAVA_INT, arguments));
    }

    private static MethodHandle findCritical(String name, MemoryLayout... arguments) {
        return LINKER.downcallHandle(
                symbol(name), FunctionDescriptor.of(JAVA_INT, arguments), Linker.Option.critical(true));
    }
}
