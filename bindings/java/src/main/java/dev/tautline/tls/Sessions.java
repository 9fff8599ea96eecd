package dev.tautline.tls;

import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSessionContext;

/**
 * The sessions that a context knows, for programs that list them. Tickets of servers are stateless, and those of
 * clients lie in the library, so nothing here takes part in resumption but {@link #generation}.
 */
final class Sessions implements SSLSessionContext {
    private static final int DEFAULT_SIZE = 1024;
    private static final int DEFAULT_TIMEOUT = 86_400;

    private final AtomicInteger generation = new AtomicInteger();
    private final Map<String, TautlineSession> byId = new LinkedHashMap<>();
    private final Map<String, TautlineSession> byPeer = new LinkedHashMap<>();
    private int size = DEFAULT_SIZE;
    private int timeout = DEFAULT_TIMEOUT;

    /** Counts invalidated sessions. A client resumes no session of an earlier generation. */
    int generation() {
        return generation.get();
    }

    /** Notes a session, in place of an earlier one with the same peer. */
    synchronized void add(TautlineSession session, String peer) {
        byId.put(key(session.getId()), session);
        if (peer != null) {
            byPeer.put(peer, session);
        }
        trim(byId);
        trim(byPeer);
    }

    /** The last session with a peer. */
    synchronized TautlineSession with(String peer) {
        return byPeer.get(peer);
    }

    synchronized void remove(TautlineSession session) {
        byId.remove(key(session.getId()));
        byPeer.values().removeIf(other -> Arrays.equals(other.getId(), session.getId()));
        generation.incrementAndGet();
    }

    @Override
    public synchronized SSLSession getSession(byte[] id) {
        expire();
        return byId.get(key(id));
    }

    @Override
    public synchronized Enumeration<byte[]> getIds() {
        expire();
        List<byte[]> ids = byId.values().stream().map(TautlineSession::getId).toList();
        return Collections.enumeration(ids);
    }

    @Override
    public synchronized void setSessionTimeout(int seconds) {
        if (seconds < 0) {
            throw new IllegalArgumentException("a timeout is not negative");
        }
        timeout = seconds;
        expire();
    }

    @Override
    public synchronized int getSessionTimeout() {
        return timeout;
    }

    @Override
    public synchronized void setSessionCacheSize(int most) {
        if (most < 0) {
            throw new IllegalArgumentException("a size is not negative");
        }
        size = most;
        trim(byId);
        trim(byPeer);
    }

    @Override
    public synchronized int getSessionCacheSize() {
        return size;
    }

    /** Forgets sessions older than the timeout; 0 is for none. */
    private void expire() {
        long oldest = System.currentTimeMillis() - 1000L * timeout;
        if (timeout > 0) {
            byId.values().removeIf(session -> session.getCreationTime() < oldest);
            byPeer.values().removeIf(session -> session.getCreationTime() < oldest);
        }
    }

    private void trim(Map<String, TautlineSession> map) {
        while (size > 0 && map.size() > size) {
            map.remove(map.keySet().iterator().next());
        }
    }

    private static String key(byte[] id) {
        return HexFormat.of().formatHex(id);
    }
}
