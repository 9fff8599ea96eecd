package dev.tautline.tls;

import java.security.Provider;

/**
 * A provider of {@code SSLContext}s whose engines run TLS in Tautline.
 *
 * <p>{@code SSLContext.getInstance("TLS", new TautlineProvider())} makes one context.
 * {@code Security.insertProviderAt(new TautlineProvider(), 1)} makes it the default of a program.
 */
public final class TautlineProvider extends Provider {
    private static final long serialVersionUID = 1;

    /** Makes the provider, whose name is {@code Tautline}. It loads the library. */
    public TautlineProvider() {
        super("Tautline", "0.1.0", "TLS 1.2 and 1.3 by Tautline");
        // Fails here and not in the first handshake, if the library is missing.
        Native.text(Native.OK);
        put("SSLContext.TLS", TautlineContext.Any.class.getName());
        put("SSLContext.TLSv1.2", TautlineContext.Tls12.class.getName());
        put("SSLContext.TLSv1.3", TautlineContext.Any.class.getName());
    }
}
