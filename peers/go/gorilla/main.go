// Gorilla is a server on github.com/gorilla/websocket, after its examples echo and chat.
package main

import (
	"net/http"

	"github.com/gorilla/websocket"
	"peers/peer"
)

var (
	upgrader = websocket.Upgrader{}
	hub      peer.Hub[*websocket.PreparedMessage]
)

func main() { peer.Serve(echo, broadcast) }

func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil || conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}

func broadcast(w http.ResponseWriter, r *http.Request) {
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	queue := hub.Join()
	defer hub.Leave(queue)
	go func() {
		for message := range queue {
			if conn.WritePreparedMessage(message) != nil {
				conn.Close()
			}
		}
	}()
	for {
		kind, data, err := conn.ReadMessage()
		if err != nil {
			return
		}
		message, err := websocket.NewPreparedMessage(kind, data)
		if err != nil {
			return
		}
		hub.Publish(message)
	}
}
