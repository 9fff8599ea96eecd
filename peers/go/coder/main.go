// Coder is a server on github.com/coder/websocket, after its examples echo and chat.
package main

import (
	"context"
	"net/http"

	"github.com/coder/websocket"
	"peers/peer"
)

type message struct {
	kind websocket.MessageType
	data []byte
}

var hub peer.Hub[message]

func main() { peer.Serve(echo, broadcast) }

func accept(w http.ResponseWriter, r *http.Request) *websocket.Conn {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil
	}
	// The default is 32 KiB.
	conn.SetReadLimit(64 << 20)
	return conn
}

func echo(w http.ResponseWriter, r *http.Request) {
	conn := accept(w, r)
	if conn == nil {
		return
	}
	defer conn.CloseNow()
	ctx := context.Background()
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil || conn.Write(ctx, kind, data) != nil {
			return
		}
	}
}

func broadcast(w http.ResponseWriter, r *http.Request) {
	conn := accept(w, r)
	if conn == nil {
		return
	}
	defer conn.CloseNow()
	queue := hub.Join()
	defer hub.Leave(queue)
	ctx := context.Background()
	go func() {
		for next := range queue {
			if conn.Write(ctx, next.kind, next.data) != nil {
				conn.CloseNow()
			}
		}
	}()
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		hub.Publish(message{kind, data})
	}
}
