package dev.tautline.tls;

import java.security.AlgorithmConstraints;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Objects;
import java.util.function.BiFunction;
import java.util.regex.Pattern;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SNIMatcher;
import javax.net.ssl.SNIServerName;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLParameters;

/** The parameters of one engine, and what follows from them. The engine's lock guards them. */
final class Parameters {
    private static final Pattern SUITE = Pattern.compile("(TLS|SSL)_[A-Z0-9_a-z]+");
    private static final Pattern PROTOCOL = Pattern.compile("TLSv1(\\.[1-3])?|SSLv3|SSLv2Hello");

    boolean client;
    boolean modeSet;
    boolean need;
    boolean want;
    List<String> suites = TautlineContext.SUITES;
    List<String> protocols;
    List<String> applicationProtocols = List.of();
    BiFunction<SSLEngine, List<String>, String> selector;
    private AlgorithmConstraints constraints;
    private String identification;
    /** Null for the peer's host. */
    private List<SNIServerName> serverNames;
    private Collection<SNIMatcher> matchers = List.of();
    private boolean ownOrder = true;
    private boolean retransmissions = true;
    private int maximumPacketSize;
    private String[] groups;
    private String[] schemes;

    Parameters(List<String> protocols) {
        this.protocols = protocols;
    }

    SSLParameters get() {
        SSLParameters copy = new SSLParameters(suites.toArray(new String[0]), protocols.toArray(new String[0]));
        if (need) {
            copy.setNeedClientAuth(true);
        } else {
            copy.setWantClientAuth(want);
        }
        copy.setAlgorithmConstraints(constraints);
        copy.setEndpointIdentificationAlgorithm(identification);
        if (serverNames != null) {
            copy.setServerNames(serverNames);
        }
        if (!matchers.isEmpty()) {
            copy.setSNIMatchers(matchers);
        }
        copy.setUseCipherSuitesOrder(ownOrder);
        copy.setEnableRetransmissions(retransmissions);
        copy.setMaximumPacketSize(maximumPacketSize);
        copy.setNamedGroups(groups);
        copy.setSignatureSchemes(schemes);
        copy.setApplicationProtocols(applicationProtocols.toArray(new String[0]));
        return copy;
    }

    void set(SSLParameters given) {
        List<String> givenSuites = given.getCipherSuites() == null
                ? suites : suites(given.getCipherSuites());
        List<String> givenProtocols = given.getProtocols() == null
                ? protocols : protocols(given.getProtocols());
        suites = givenSuites;
        protocols = givenProtocols;
        need = given.getNeedClientAuth();
        want = given.getWantClientAuth();
        constraints = given.getAlgorithmConstraints();
        identification = given.getEndpointIdentificationAlgorithm();
        serverNames = given.getServerNames() == null ? serverNames : List.copyOf(given.getServerNames());
        matchers = given.getSNIMatchers() == null ? matchers : List.copyOf(given.getSNIMatchers());
        ownOrder = given.getUseCipherSuitesOrder();
        retransmissions = given.getEnableRetransmissions();
        maximumPacketSize = given.getMaximumPacketSize();
        // Kept for the program alone: servers set lists of the JDK's here, and the library has its own.
        groups = given.getNamedGroups();
        schemes = given.getSignatureSchemes();
        applicationProtocols = List.of(given.getApplicationProtocols());
    }

    /**
     * The suites among these that there are. Programs give lists of the JDK's, so the others are left out, unless none
     * remains or a name is none of a suite.
     */
    static List<String> suites(String[] names) {
        return supported(names, TautlineContext.SUITES, SUITE, "cipher suite");
    }

    /** The versions of TLS among these that there are, likewise. */
    static List<String> protocols(String[] names) {
        return supported(names, TautlineContext.PROTOCOLS, PROTOCOL, "protocol");
    }

    private static List<String> supported(String[] names, List<String> supported, Pattern form, String what) {
        List<String> remaining = new ArrayList<>();
        for (String name : Objects.requireNonNull(names, what)) {
            if (supported.contains(name)) {
                remaining.add(name);
            } else if (name == null || !form.matcher(name).matches()) {
                throw new IllegalArgumentException("there is no " + what + " " + name);
            }
        }
        if (remaining.isEmpty() && names.length > 0) {
            throw new IllegalArgumentException("unsupported " + what + " " + names[0] + ": there are " + supported);
        }
        return List.copyOf(remaining);
    }

    /** What a server demands of clients: 0 no certificate, 1 one if they have one, 2 one in any case. */
    int demand() {
        return need ? 2 : want ? 1 : 0;
    }

    /** Whether a server decides by the ClientHello. */
    boolean needsHello() {
        return selector != null || !matchers.isEmpty();
    }

    /** The names that a client sends. */
    List<SNIServerName> names() {
        return serverNames == null ? List.of() : serverNames;
    }

    /** The host by which the library knows a client's peer: the name to be sent, or an address; null for neither. */
    String host(String peerHost) {
        if (serverNames != null) {
            for (SNIServerName name : serverNames) {
                if (name instanceof SNIHostName host) {
                    return host.getAsciiName();
                }
            }
        }
        if (peerHost == null) {
            return null;
        }
        String bare = peerHost.startsWith("[") && peerHost.endsWith("]")
                ? peerHost.substring(1, peerHost.length() - 1) : peerHost;
        boolean isNameToSend = serverNames == null && HostName.isName(bare);
        return isNameToSend || HostName.isAddress(bare) && bare.indexOf('%') < 0 ? bare : null;
    }

    Settings settings(List<String> chosen, String host, int port, TautlineContext context) throws SSLException {
        boolean tls12 = protocols.contains("TLSv1.2") && suites.stream().anyMatch(suite -> suite.contains("_WITH_"));
        boolean tls13 = protocols.contains("TLSv1.3") && suites.stream().anyMatch(suite -> !suite.contains("_WITH_"));
        if (!tls12 && !tls13) {
            throw new SSLHandshakeException("no protocol with a cipher suite is enabled: setEnabledProtocols and"
                    + " setEnabledCipherSuites have turned all off");
        }
        int versions = tls12 && tls13 ? 0 : tls13 ? 13 : 12;
        return client
                ? new Settings(true, versions, chosen, 0, host != null, port, context.sessions(true).generation())
                : new Settings(false, versions, chosen, demand(), false, 0, 0);
    }

    /** Whether the server's matchers, if there are any, accept the names that a client asks for. */
    boolean accepts(List<SNIServerName> names) {
        for (SNIServerName name : names) {
            for (SNIMatcher matcher : matchers) {
                if (matcher.getType() == name.getType() && !matcher.matches(name)) {
                    return false;
                }
            }
        }
        return true;
    }

    /** The application protocols of a server's connection; null if the program rejects all of the client's. */
    List<String> choose(List<String> offered, SSLEngine engine) {
        if (selector == null) {
            return applicationProtocols;
        }
        if (offered == null) {
            return List.of();
        }
        String chosen = selector.apply(engine, offered);
        if (chosen == null || !chosen.isEmpty() && !offered.contains(chosen)) {
            return null;
        }
        return chosen.isEmpty() ? List.of() : List.of(chosen);
    }
}
