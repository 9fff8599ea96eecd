import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.websocketx.BinaryWebSocketFrame;
import io.netty.handler.codec.http.websocketx.TextWebSocketFrame;
import io.netty.handler.codec.http.websocketx.WebSocketFrame;
import io.netty.handler.codec.http.websocketx.WebSocketFrameAggregator;
import io.netty.handler.codec.http.websocketx.WebSocketServerProtocolConfig;
import io.netty.handler.codec.http.websocketx.WebSocketServerProtocolHandler;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import java.io.File;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * A server on Netty, after its example {@code http.websocketx.server}, with its epoll transport and BoringSSL, which it
 * recommends for speed, and one event loop. Arguments: echo|broadcast CERT KEY.
 */
public final class Server {
  private static final int MOST = 64 << 20;

  /** Sends each message back. */
  @Sharable
  private static final class Echo extends SimpleChannelInboundHandler<WebSocketFrame> {
    @Override
    protected void channelRead0(ChannelHandlerContext context, WebSocketFrame frame) {
      if (frame instanceof BinaryWebSocketFrame || frame instanceof TextWebSocketFrame) {
        context.write(frame.retain(), context.voidPromise());
      }
    }

    @Override
    public void channelReadComplete(ChannelHandlerContext context) {
      context.flush();
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
      context.close();
    }
  }

  /** Sends each message to everyone. */
  @Sharable
  private static final class Broadcast extends SimpleChannelInboundHandler<WebSocketFrame> {
    private final ChannelGroup clients;

    Broadcast(ChannelGroup clients) {
      this.clients = clients;
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
      if (event instanceof WebSocketServerProtocolHandler.HandshakeComplete) {
        clients.add(context.channel());
      }
      context.fireUserEventTriggered(event);
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, WebSocketFrame frame) {
      if (frame instanceof BinaryWebSocketFrame || frame instanceof TextWebSocketFrame) {
        clients.writeAndFlush(frame.retain(), channel -> true, true);
      }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
      context.close();
    }
  }

  public static void main(String[] arguments) throws Exception {
    SslContext tls =
        SslContextBuilder.forServer(new File(arguments[1]), new File(arguments[2]))
            .sslProvider(SslProvider.OPENSSL_REFCNT)
            .protocols("TLSv1.3")
            .ciphers(List.of("TLS_AES_128_GCM_SHA256"))
            .build();
    WebSocketServerProtocolConfig config =
        WebSocketServerProtocolConfig.newBuilder().websocketPath("/").maxFramePayloadLength(MOST).build();
    MultiThreadIoEventLoopGroup loop = new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory());
    ChannelGroup clients = new DefaultChannelGroup(loop.next());
    boolean toAll = arguments[0].equals("broadcast");
    ChannelInitializer<SocketChannel> pipeline =
        new ChannelInitializer<>() {
          @Override
          protected void initChannel(SocketChannel channel) {
            channel
                .pipeline()
                .addLast(tls.newHandler(channel.alloc()))
                .addLast(new HttpServerCodec())
                .addLast(new HttpObjectAggregator(65536))
                .addLast(new WebSocketServerProtocolHandler(config))
                .addLast(new WebSocketFrameAggregator(MOST))
                .addLast(toAll ? new Broadcast(clients) : new Echo());
          }
        };
    Channel server =
        new ServerBootstrap()
            .group(loop)
            .channel(EpollServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 4096)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childHandler(pipeline)
            .bind("127.0.0.1", 0)
            .sync()
            .channel();
    int port = ((InetSocketAddress) server.localAddress()).getPort();
    System.out.println("listening on wss://127.0.0.1:" + port);
    server.closeFuture().sync();
  }
}
