package dev.tautline.tls;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SNIServerName;

/**
 * What a server's engine must know of a ClientHello before the library does: the name and the protocols that the
 * client asks for (RFC 6066, section 3, and RFC 7301).
 *
 * @param names the names (SNI); empty if there are none
 * @param protocols the application protocols (ALPN); null if there is no such extension
 */
record ClientHello(List<SNIServerName> names, List<String> protocols) {
    private static final int SERVER_NAME = 0;
    private static final int ALPN = 16;

    /** Collects the records of a ClientHello. */
    static final class Collector {
        /** No client needs more. */
        private static final int MOST = 1 << 16;

        private final ByteBuffer records = ByteBuffer.allocate(MOST);
        private final ByteBuffer message = ByteBuffer.allocate(MOST);

        /**
         * Adds one whole record, and says whether more are needed. What is no ClientHello needs no more: the library
         * rejects it.
         */
        boolean add(ByteBuffer record) {
            if (record.remaining() > records.remaining()) {
                return false;
            }
            records.put(record.duplicate());
            if (record.get(record.position()) != 22) {
                return false;
            }
            message.put(record.slice(record.position() + 5, record.remaining() - 5));
            if (message.position() < 4) {
                return true;
            }
            return message.get(0) == 1 && message.position() < 4 + (message.getInt(0) & 0xFF_FFFF);
        }

        /** All records, to be read. */
        ByteBuffer records() {
            return records.flip();
        }

        /** The message; an empty one if it is malformed, which the library reports. */
        ClientHello parse() {
            message.flip();
            try {
                message.position(4 + 2 + 32);
                skip(message, message.get() & 0xFF);
                skip(message, message.getShort() & 0xFFFF);
                skip(message, message.get() & 0xFF);
                return extensions(part(message));
            } catch (BufferUnderflowException | IllegalArgumentException malformed) {
                return new ClientHello(List.of(), null);
            }
        }
    }

    private static ClientHello extensions(ByteBuffer extensions) {
        List<SNIServerName> names = new ArrayList<>();
        List<String> protocols = null;
        while (extensions.hasRemaining()) {
            int kind = extensions.getShort() & 0xFFFF;
            ByteBuffer content = part(extensions);
            if (kind == ALPN) {
                protocols = new ArrayList<>();
                for (ByteBuffer list = part(content); list.hasRemaining();) {
                    protocols.add(text(list, list.get() & 0xFF));
                }
            } else if (kind == SERVER_NAME && content.hasRemaining()) {
                for (ByteBuffer list = part(content); list.hasRemaining();) {
                    int type = list.get();
                    String name = text(list, list.getShort() & 0xFFFF);
                    if (type == 0) {
                        names.add(new SNIHostName(name.getBytes(StandardCharsets.ISO_8859_1)));
                    }
                }
            }
        }
        return new ClientHello(names, protocols);
    }

    /** The part behind a length of two bytes. */
    private static ByteBuffer part(ByteBuffer from) {
        int length = from.getShort() & 0xFFFF;
        ByteBuffer part = from.slice(from.position(), length);
        skip(from, length);
        return part;
    }

    private static String text(ByteBuffer from, int length) {
        byte[] bytes = new byte[length];
        from.get(bytes);
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    private static void skip(ByteBuffer from, int length) {
        from.position(from.position() + length);
    }
}
