// Package peer has the parts that both servers share: the arguments, HTTPS on one thread, and a hub for broadcasts.
package peer

import (
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
)

// Serve runs one of the handlers, as the arguments MODE CERT KEY say, until the process is stopped.
func Serve(echo, broadcast http.HandlerFunc) {
	if len(os.Args) != 4 {
		log.Fatalf("usage: %s echo|broadcast CERT KEY", os.Args[0])
	}
	handler, ok := map[string]http.HandlerFunc{"echo": echo, "broadcast": broadcast}[os.Args[1]]
	if !ok {
		log.Fatalf("there is no mode %q", os.Args[1])
	}
	// One thread runs goroutines; the runtime has a few more, which mostly sleep.
	runtime.GOMAXPROCS(1)
	// Read before the server says that it listens: the files are only sure to be there until then.
	certificate, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on wss://%s\n", listener.Addr())
	// Go chooses AES-128-GCM among the suites of TLS 1.3 where the processor has instructions for it.
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}}
	server := http.Server{Handler: handler, TLSConfig: config}
	log.Fatal(server.ServeTLS(listener, "", ""))
}

// Hub passes messages to all clients. Each has a queue and a goroutine that writes, as in both libraries' chats.
type Hub[Message any] struct {
	lock    sync.Mutex
	clients map[chan Message]struct{}
}

// Join adds a client.
func (hub *Hub[Message]) Join() chan Message {
	queue := make(chan Message, 256)
	hub.lock.Lock()
	defer hub.lock.Unlock()
	if hub.clients == nil {
		hub.clients = map[chan Message]struct{}{}
	}
	hub.clients[queue] = struct{}{}
	return queue
}

// Leave removes a client, and ends its queue.
func (hub *Hub[Message]) Leave(queue chan Message) {
	hub.lock.Lock()
	defer hub.lock.Unlock()
	delete(hub.clients, queue)
	close(queue)
}

// Publish passes a message to all clients but those whose queue is full.
func (hub *Hub[Message]) Publish(message Message) {
	hub.lock.Lock()
	defer hub.lock.Unlock()
	for queue := range hub.clients {
		select {
		case queue <- message:
		default:
		}
	}
}
