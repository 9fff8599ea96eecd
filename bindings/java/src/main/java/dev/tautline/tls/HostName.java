package dev.tautline.tls;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;

/** Names of hosts: of which form they are, and whether a certificate is for them (RFC 6125). */
final class HostName {
    private static final int DNS = 2;
    private static final int ADDRESS = 7;

    private static final Pattern IPV4 = Pattern.compile("[0-9]{1,3}(\\.[0-9]{1,3}){3}");
    private static final Pattern NAME = Pattern.compile("(?!.*\\.\\.)[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?");

    private HostName() {}

    static boolean isAddress(String host) {
        return IPV4.matcher(host).matches() || host.indexOf(':') >= 0;
    }

    /** Whether this is a name that a client can send (SNI). */
    static boolean isName(String host) {
        return !isAddress(host) && NAME.matcher(host).matches();
    }

    /** Checks that a certificate is for this host, for trust managers that do not. */
    static void check(String host, X509Certificate certificate) throws CertificateException {
        Collection<List<?>> names = certificate.getSubjectAlternativeNames();
        if (host != null && names != null) {
            for (List<?> name : names) {
                int kind = (Integer) name.get(0);
                if (kind == DNS && !isAddress(host) && matches(host, (String) name.get(1))
                        || kind == ADDRESS && isAddress(host) && same(host, (String) name.get(1))) {
                    return;
                }
            }
        }
        throw new CertificateException("the certificate is not for " + host);
    }

    /** Whether a name, perhaps with a wildcard as its whole first label, is that of the host. */
    private static boolean matches(String host, String name) {
        String wanted = host.endsWith(".") ? host.substring(0, host.length() - 1) : host;
        if (!name.startsWith("*.")) {
            return wanted.equalsIgnoreCase(name);
        }
        int dot = wanted.indexOf('.');
        String suffix = name.substring(1).toLowerCase(Locale.ROOT);
        return dot > 0 && suffix.indexOf('.', 1) > 0 && wanted.substring(dot).toLowerCase(Locale.ROOT).equals(suffix);
    }

    private static boolean same(String host, String address) {
        try {
            // Neither is a name, so nothing is resolved.
            return InetAddress.getByName(host).equals(InetAddress.getByName(address));
        } catch (UnknownHostException malformed) {
            return false;
        }
    }
}
