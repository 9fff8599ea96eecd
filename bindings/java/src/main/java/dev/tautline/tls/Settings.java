package dev.tautline.tls;

import java.util.List;

/**
 * The settings of an engine that its native configuration depends on. Engines of one context with equal settings share
 * a configuration, and with it tickets and sessions.
 *
 * @param client whether the engine opens connections
 * @param versions 0 for TLS 1.2 and 1.3, or 12 or 13
 * @param protocols application protocols (ALPN) by preference
 * @param demand whether a server requests certificates: 0 not, 1 optionally, 2 always
 * @param resumption whether a client resumes sessions
 * @param port the peer's port for a client, whose sessions the library knows by their host alone; else 0
 * @param generation the number of times that a session of this context was invalidated
 */
record Settings(
        boolean client, int versions, List<String> protocols, int demand, boolean resumption, int port,
        int generation) {}
