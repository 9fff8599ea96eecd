// WebSocket servers with one fault each, by `ws` and Node's own http and https.
// Called as: faults.js FOLDER NAME=PORT ...
'use strict';
const fs = require('fs');
const http = require('http');
const https = require('https');
const { WebSocketServer } = require('ws');

const [folder, ...pairs] = process.argv.slice(2);
const ports = Object.fromEntries(pairs.map((pair) => pair.split('=')));
const pem = (name) => ({
  cert: fs.readFileSync(`${folder}/${name}.pem`),
  key: fs.readFileSync(`${folder}/${name}.key`),
});

let waiting = 0;
const listen = (server, port) => {
  waiting += 1;
  server.listen(Number(port), '127.0.0.1', () => {
    waiting -= 1;
    if (waiting === 0) console.log('ready');
  });
};

const echo = (socket) => {
  socket.on('error', () => {});
  socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
};

// A server of `ws` over TLS, with further options and behaviour.
const serve = (port, options = {}, onConnection = echo, certificate = 'good') => {
  const server = https.createServer(pem(certificate));
  new WebSocketServer({ server, perMessageDeflate: true, ...options }).on('connection', onConnection);
  listen(server, port);
};

const servers = {
  good: (port) => serve(port),
  self: (port) => serve(port, {}, echo, 'self'),
  // Behind proxies, without TLS.
  plain: (port) => {
    const server = http.createServer((request, response) => response.writeHead(426).end('Upgrade Required'));
    new WebSocketServer({ server }).on('connection', echo);
    listen(server, port);
  },
  'no-deflate': (port) => serve(port, { perMessageDeflate: false }),
  'no-subprotocol': (port) => serve(port, { handleProtocols: () => false }),
  'no-pong': (port) => serve(port, { autoPong: false }),
  small: (port) => serve(port, { maxPayload: 10000 }),
  slow: (port) => serve(port, {}, (socket) => setTimeout(() => socket.send('at last'), 400)),
  'no-close': (port) => serve(port, {}, (socket) => {
    socket._receiver.removeAllListeners('conclude');
    socket._receiver.on('conclude', () => socket.terminate());
  }),
  kicked: (port) => serve(port, {}, (socket) => socket.close(4001, 'log in first')),
  accept: (port) => {
    const server = https.createServer(pem('good'));
    server.on('upgrade', (request, socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
        'Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n');
    });
    listen(server, port);
  },
};

for (const [name, port] of Object.entries(ports)) servers[name](port);
