// The client of README.md, with gorilla/websocket.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
)

var sizes = []int{0, 1, 125, 126, 127, 4096, 65535, 65536, 1 << 20}

func check(name string, holds bool) {
	if !holds {
		fmt.Println("FAIL", name)
		os.Exit(1)
	}
	fmt.Println("ok  ", name)
}

func must(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func payload(size int) []byte {
	bytes := make([]byte, size)
	for i := range bytes {
		bytes[i] = byte(i * 7 % 251)
	}
	return bytes
}

// Sends a message and reports whether the same comes back.
func echoes(ws *websocket.Conn, kind int, data []byte) bool {
	must(ws.WriteMessage(kind, data))
	return comes(ws, kind, data)
}

func comes(ws *websocket.Conn, kind int, data []byte) bool {
	gotKind, got, err := ws.ReadMessage()
	must(err)
	return gotKind == kind && bytes.Equal(got, data)
}

func echo(dial func(websocket.Dialer) (*websocket.Conn, error)) {
	// Whatever exceeds the write buffer leaves as a fragment.
	ws, err := dial(websocket.Dialer{WriteBufferSize: 1024})
	must(err)
	for _, text := range []string{"hello", "", "Grüße, 世界 🦀"} {
		check(fmt.Sprintf("text %q", text), echoes(ws, websocket.TextMessage, []byte(text)))
	}
	for _, size := range sizes {
		check(fmt.Sprintf("binary %d", size), echoes(ws, websocket.BinaryMessage, payload(size)))
	}
	writer, err := ws.NextWriter(websocket.TextMessage)
	must(err)
	for i := 0; i < 500; i++ {
		_, err = writer.Write([]byte("frägment "))
		must(err)
	}
	must(writer.Close())
	check("text in fragments", comes(ws, websocket.TextMessage, []byte(strings.Repeat("frägment ", 500))))
	pong := ""
	ws.SetPongHandler(func(data string) error { pong = data; return nil })
	must(ws.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(10*time.Second)))
	check("message after ping", echoes(ws, websocket.TextMessage, []byte("x")))
	check("ping", pong == "are you there")
	for i := 0; i < 300; i++ {
		must(ws.WriteMessage(websocket.TextMessage, []byte(fmt.Sprint(i, strings.Repeat("x", 1000)))))
	}
	same := true
	for i := 0; i < 300; i++ {
		same = comes(ws, websocket.TextMessage, []byte(fmt.Sprint(i, strings.Repeat("x", 1000)))) && same
	}
	check("300 pipelined", same)
	end := websocket.FormatCloseMessage(4001, "bye")
	must(ws.WriteControl(websocket.CloseMessage, end, time.Now().Add(10*time.Second)))
	_, _, err = ws.ReadMessage()
	closed := &websocket.CloseError{}
	check("close is answered with its code", errors.As(err, &closed) && closed.Code == 4001)

	ws, err = dial(websocket.Dialer{EnableCompression: true})
	must(err)
	for _, size := range sizes {
		text := []byte(strings.Repeat("tautline ", size/9+1)[:size])
		check(fmt.Sprintf("compressed text %d", size), echoes(ws, websocket.TextMessage, text))
		check(fmt.Sprintf("compressed binary %d", size), echoes(ws, websocket.BinaryMessage, payload(size)))
	}
	must(ws.Close())
}

func subprotocol(dial func(websocket.Dialer) (*websocket.Conn, error)) {
	ws, err := dial(websocket.Dialer{Subprotocols: []string{"unknown.test", "echo.test"}})
	must(err)
	check("subprotocol", ws.Subprotocol() == "echo.test")
	must(ws.Close())
}

func refused(dial func(websocket.Dialer) (*websocket.Conn, error)) {
	ws, err := dial(websocket.Dialer{})
	if err == nil {
		must(ws.SetReadDeadline(time.Now().Add(10 * time.Second)))
		_, _, err = ws.ReadMessage()
	}
	check(fmt.Sprint("refused: ", err), err != nil && !os.IsTimeout(err) && !errors.Is(err, syscall.ECONNREFUSED))
}

func drain(dial func(websocket.Dialer) (*websocket.Conn, error)) {
	ws, err := dial(websocket.Dialer{})
	must(err)
	fmt.Println("ready")
	must(ws.SetReadDeadline(time.Now().Add(30 * time.Second)))
	_, _, err = ws.ReadMessage()
	check(fmt.Sprint("the server went away with ", err), websocket.IsCloseError(err, 1001, 1012))
}

func main() {
	time.AfterFunc(2*time.Minute, func() { check("done within two minutes", false) })
	url, authority, name, own := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	pem, err := os.ReadFile(authority)
	must(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if len(own) == 2 {
		certificate, err := tls.LoadX509KeyPair(own[0], own[1])
		must(err)
		config.Certificates = []tls.Certificate{certificate}
	}
	dial := func(dialer websocket.Dialer) (*websocket.Conn, error) {
		dialer.TLSClientConfig = config
		dialer.HandshakeTimeout = 10 * time.Second
		ws, response, err := dialer.Dial(url, nil)
		if err == nil {
			offered := strings.Contains(response.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate")
			check(fmt.Sprint("compression negotiated: ", offered), offered == dialer.EnableCompression)
		}
		return ws, err
	}
	cases := map[string]func(func(websocket.Dialer) (*websocket.Conn, error)){
		"echo": echo, "subprotocol": subprotocol, "refused": refused, "drain": drain,
	}
	cases[name](dial)
}
