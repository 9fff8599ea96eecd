// The server of README.md, with gorilla/websocket.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

var upgrader = websocket.Upgrader{EnableCompression: true, Subprotocols: []string{"echo.test"}, WriteBufferSize: 512}

func handle(w http.ResponseWriter, r *http.Request) {
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	if r.URL.Path == "/facts" {
		deflate := strings.Contains(r.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate")
		client := ""
		if len(r.TLS.PeerCertificates) > 0 {
			client = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		facts := map[string]any{"subprotocol": ws.Subprotocol(), "deflate": deflate, "client": client}
		text, _ := json.Marshal(facts)
		_ = ws.WriteMessage(websocket.TextMessage, text)
	}
	waiting := ""
	ws.SetPongHandler(func(data string) error {
		if data != "" && data == waiting {
			return ws.WriteMessage(websocket.TextMessage, []byte("pong "+data))
		}
		return nil
	})
	for {
		kind, data, err := ws.ReadMessage()
		if err != nil {
			return
		}
		soon := time.Now().Add(10 * time.Second)
		switch r.URL.Path {
		case "/ping":
			waiting = string(data)
			err = ws.WriteControl(websocket.PingMessage, data, soon)
		case "/close":
			var code int
			text, reason, _ := strings.Cut(string(data), " ")
			_, _ = fmt.Sscan(text, &code)
			err = ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), soon)
		case "/fragments":
			err = ws.WriteControl(websocket.PingMessage, nil, soon)
			if err == nil {
				err = fragments(ws, kind, data)
			}
		default:
			err = ws.WriteMessage(kind, data)
		}
		if err != nil {
			return
		}
	}
}

// Writes byte by byte: whatever exceeds the write buffer leaves as a fragment.
func fragments(ws *websocket.Conn, kind int, data []byte) error {
	writer, err := ws.NextWriter(kind)
	for i := 0; i < len(data) && err == nil; i++ {
		_, err = writer.Write(data[i : i+1])
	}
	if err != nil {
		return err
	}
	return writer.Close()
}

func main() {
	port, chain, key, authority := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(authority) == 1 {
		pem, err := os.ReadFile(authority[0])
		if err != nil {
			log.Fatal(err)
		}
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AppendCertsFromPEM(pem)
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	// No HTTP/2: the upgrade is HTTP/1.1.
	server := &http.Server{Handler: http.HandlerFunc(handle), TLSConfig: config,
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
	log.Fatal(server.ServeTLS(listener, chain, key))
}
