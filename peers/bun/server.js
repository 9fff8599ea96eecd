// A server on Bun's own WebSockets, after the examples in its documentation. Arguments: echo|broadcast CERT KEY.
const [mode, cert, key] = process.argv.slice(2);

const handlers = {
  echo: {
    message: (socket, message) => void socket.send(message),
  },
  broadcast: {
    open: (socket) => socket.subscribe('all'),
    message: (socket, message) => void server.publish('all', message),
  },
};

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  tls: { cert: Bun.file(cert), key: Bun.file(key) },
  fetch: (request, server) =>
    server.upgrade(request) ? undefined : new Response('this is a WebSocket server\n', { status: 426 }),
  websocket: {
    ...handlers[mode],
    perMessageDeflate: false,
    maxPayloadLength: 64 << 20,
    backpressureLimit: 64 << 20,
  },
});
console.log(`listening on wss://127.0.0.1:${server.port}`);
