// A server on ws, after the examples "External HTTPS server" and "Server broadcast" of its README, with bufferutil, which
// the README recommends for speed. Arguments: echo|broadcast CERT KEY.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { WebSocket, WebSocketServer } from 'ws';

const [mode, cert, key] = process.argv.slice(2);
const server = createServer({
  cert: readFileSync(cert),
  key: readFileSync(key),
  minVersion: 'TLSv1.3',
  ciphers: 'TLS_AES_128_GCM_SHA256',
});
const sockets = new WebSocketServer({ server, perMessageDeflate: false });

function echo(socket) {
  socket.on('error', () => {});
  socket.on('message', (data, binary) => socket.send(data, { binary }));
}

function broadcast(socket) {
  socket.on('error', () => {});
  socket.on('message', (data, binary) => {
    for (const client of sockets.clients) {
      if (client.readyState === WebSocket.OPEN) client.send(data, { binary });
    }
  });
}

sockets.on('connection', { echo, broadcast }[mode]);
server.listen(0, '127.0.0.1', () => console.log(`listening on wss://127.0.0.1:${server.address().port}`));
