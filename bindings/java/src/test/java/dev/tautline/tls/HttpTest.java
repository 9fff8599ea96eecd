package dev.tautline.tls;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLSocket;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.ssl.SslContextFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Servers and clients of others, which use the provider as they use any. */
class HttpTest {
    private static final Certificates KEYS = Certificates.ec();

    @ParameterizedTest
    @CsvSource({"ours,ours", "ours,jdks", "jdks,ours"})
    void theJdksClientTalksToTheJdksServer(String client, String server) throws Exception {
        HttpsServer serving = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        serving.setHttpsConfigurator(new HttpsConfigurator(EngineTest.context(KEYS, server)));
        serving.setExecutor(Executors.newVirtualThreadPerTaskExecutor());
        serving.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        serving.start();
        try {
            echo(EngineTest.context(KEYS, client), serving.getAddress().getPort());
        } finally {
            serving.stop(0);
        }
    }

    /** In its dispatcher, the JDK's server answers a client's close until the engine says that no more is needed. */
    @ParameterizedTest
    @ValueSource(strings = {"TLSv1.3", "TLSv1.2"})
    void theJdksServerOutlivesClientsThatClose(String version) throws Exception {
        HttpsServer serving = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        serving.setHttpsConfigurator(new HttpsConfigurator(KEYS.ours()));
        serving.createContext("/", exchange -> {
            exchange.sendResponseHeaders(204, -1);
            exchange.close();
        });
        serving.start();
        try {
            for (int turn = 0; turn < 3; turn++) {
                try (SSLSocket socket = (SSLSocket) KEYS.jdks().getSocketFactory()
                        .createSocket(InetAddress.getLoopbackAddress(), serving.getAddress().getPort())) {
                    socket.setSoTimeout(60_000);
                    socket.setEnabledProtocols(new String[] {version});
                    socket.getOutputStream().write("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".getBytes());
                    assertEquals('H', socket.getInputStream().read());
                    // The close_notify, while the connection is kept alive.
                    socket.shutdownOutput();
                }
            }
        } finally {
            serving.stop(0);
        }
    }

    @Test
    void jettyServes() throws Exception {
        Server serving = new Server();
        SslContextFactory.Server factory = new SslContextFactory.Server();
        factory.setSslContext(KEYS.ours());
        ServerConnector connector = new ServerConnector(serving, factory);
        connector.setHost("127.0.0.1");
        serving.addConnector(connector);
        serving.setHandler(new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) {
                Content.copy(request, response, callback);
                return true;
            }
        });
        serving.start();
        try {
            echo(KEYS.jdks(), connector.getLocalPort());
            echo(KEYS.ours(), connector.getLocalPort());
        } finally {
            serving.stop();
        }
    }

    @Test
    void tomcatServes(@TempDir Path folder) throws Exception {
        Tomcat serving = new Tomcat();
        serving.setBaseDir(folder.toString());
        Connector connector = new Connector();
        connector.setPort(0);
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("SSLEnabled", "true");
        connector.setProperty("maxPostSize", "-1");
        connector.setSecure(true);
        SSLHostConfig host = new SSLHostConfig();
        var certificate = new org.apache.tomcat.util.net.SSLHostConfigCertificate(
                host, org.apache.tomcat.util.net.SSLHostConfigCertificate.Type.UNDEFINED);
        certificate.setSslContext(new TomcatContext(KEYS.ours()));
        host.addCertificate(certificate);
        connector.addSslHostConfig(host);
        serving.setConnector(connector);
        var context = serving.addContext("", folder.toString());
        Tomcat.addServlet(context, "echo", new jakarta.servlet.http.HttpServlet() {
            private static final long serialVersionUID = 1;

            @Override
            protected void doPost(
                    jakarta.servlet.http.HttpServletRequest request, jakarta.servlet.http.HttpServletResponse response)
                    throws IOException {
                request.getInputStream().transferTo(response.getOutputStream());
            }
        }).addMapping("/*");
        serving.start();
        try {
            echo(KEYS.jdks(), connector.getLocalPort());
            echo(KEYS.ours(), connector.getLocalPort());
        } finally {
            serving.stop();
            serving.destroy();
        }
    }

    @Test
    void pemFilesServe(@TempDir Path folder) throws Exception {
        Path chain = folder.resolve("cert.pem");
        Path key = folder.resolve("key.pem");
        KeyPem pem = KeyPem.of(KEYS.keys(), false).get(0);
        Files.write(chain, pem.chain());
        Files.write(key, pem.key());
        SSLContext server = SSLContext.getInstance("TLS", new TautlineProvider());
        server.init(new javax.net.ssl.KeyManager[] {Pem.key(chain, key)}, null, null);
        SSLContext client = SSLContext.getInstance("TLSv1.3", new TautlineProvider());
        client.init(null, new javax.net.ssl.TrustManager[] {Pem.trust(chain)}, null);
        Pair pair = new Pair(client.createSSLEngine("localhost", 1), server.createSSLEngine(), false);
        pair.handshake();
        assertEquals("TLSv1.3", pair.server.getSession().getProtocol());
    }

    @Test
    void aStrangerIsNotTrusted() throws Exception {
        HttpsServer serving = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        serving.setHttpsConfigurator(new HttpsConfigurator(Certificates.rsa().ours()));
        serving.start();
        HttpRequest request = HttpRequest.newBuilder(uri(serving.getAddress().getPort())).build();
        try (HttpClient client = HttpClient.newBuilder().sslContext(KEYS.ours()).build()) {
            assertThrows(SSLHandshakeException.class,
                    () -> client.send(request, HttpResponse.BodyHandlers.discarding()));
        } finally {
            serving.stop(0);
        }
    }

    /** Posts bodies of several sizes, one after the other and at once, over HTTP/2 where the server has it. */
    private static void echo(SSLContext context, int port) throws Exception {
        try (HttpClient client = HttpClient.newBuilder().sslContext(context).build()) {
            for (int length : new int[] {1, 16_384, 1_000_000}) {
                byte[] body = new byte[length];
                new Random(length).nextBytes(body);
                assertArrayEquals(body, post(client, port, body).join());
            }
            List<CompletableFuture<byte[]>> answers = new ArrayList<>();
            byte[] body = new byte[50_000];
            new Random(1).nextBytes(body);
            for (int i = 0; i < 32; i++) {
                answers.add(post(client, port, body));
            }
            for (CompletableFuture<byte[]> answer : answers) {
                assertArrayEquals(body, answer.join());
            }
        }
    }

    private static CompletableFuture<byte[]> post(HttpClient client, int port, byte[] body) {
        HttpRequest request = HttpRequest.newBuilder(uri(port))
                .POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
        return client.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray()).thenApply(HttpResponse::body);
    }

    private static URI uri(int port) {
        return URI.create("https://localhost:" + port + "/");
    }
}
