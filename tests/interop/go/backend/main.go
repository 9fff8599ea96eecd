// The backend of README.md, with net/http and gorilla/websocket.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const mib = 1 << 20

var (
	half    = bytes.Repeat([]byte("h"), mib/2)
	lock    sync.Mutex
	waiting = map[string]chan struct{}{}
	closed  string
)

func sum(w http.ResponseWriter, r *http.Request) {
	total := sha256.New()
	length, err := io.Copy(total, r.Body)
	if err != nil {
		return
	}
	framing := "length"
	if len(r.TransferEncoding) > 0 {
		framing = "chunked"
	}
	answer := map[string]any{"length": length, "sum": hex.EncodeToString(total.Sum(nil)), "framing": framing}
	_ = json.NewEncoder(w).Encode(answer)
}

// The second event is sent once somebody asks for it, who has read the first.
func events(w http.ResponseWriter, r *http.Request) {
	next := make(chan struct{})
	lock.Lock()
	waiting[r.FormValue("name")] = next
	lock.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: first\n\n")
	w.(http.Flusher).Flush()
	<-next
	_, _ = io.WriteString(w, "data: second\n\n")
}

func next(w http.ResponseWriter, r *http.Request) {
	lock.Lock()
	close(waiting[r.FormValue("name")])
	lock.Unlock()
	_, _ = io.WriteString(w, "sent")
}

func download(w http.ResponseWriter, _ *http.Request) {
	block := make([]byte, mib)
	for at := range block {
		block[at] = byte(at % 251)
	}
	w.Header().Set("Content-Length", strconv.Itoa(50*mib))
	for n := 0; n < 50; n++ {
		_, _ = w.Write(block)
	}
}

func halfOf(length string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if length != "" {
			w.Header().Set("Content-Length", length)
		}
		_, _ = w.Write(half)
		w.(http.Flusher).Flush()
		select {}
	}
}

func die(http.ResponseWriter, *http.Request) {
	itself, _ := os.FindProcess(os.Getpid())
	_ = itself.Kill()
	select {}
}

func text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

var upgrader = websocket.Upgrader{EnableCompression: true, Subprotocols: []string{"echo.test"}}

func converse(w http.ResponseWriter, r *http.Request) {
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	ws.SetPongHandler(func(data string) error { return ws.WriteMessage(websocket.TextMessage, []byte("pong "+data)) })
	switch r.URL.Path {
	case "/half-message":
		// A frame with four of six bytes.
		_, _ = ws.UnderlyingConn().Write([]byte("\x81\x06half"))
	case "/closed":
		_ = ws.WriteMessage(websocket.TextMessage, []byte("open"))
	}
	for {
		kind, data, err := ws.ReadMessage()
		if err != nil {
			var end *websocket.CloseError
			if r.URL.Path == "/closed" && errors.As(err, &end) {
				lock.Lock()
				closed = fmt.Sprintf("%d %s", end.Code, end.Text)
				lock.Unlock()
			}
			return
		}
		soon := time.Now().Add(10 * time.Second)
		switch r.URL.Path {
		case "/ping":
			err = ws.WriteControl(websocket.PingMessage, data, soon)
		case "/close":
			var code int
			number, reason, _ := strings.Cut(string(data), " ")
			_, _ = fmt.Sscan(number, &code)
			frame := websocket.FormatCloseMessage(code, reason)
			if code == 0 {
				frame = nil
			}
			err = ws.WriteControl(websocket.CloseMessage, frame, soon)
		case "/fragments":
			// A frame without the last bit, and a continuation.
			out := ws.UnderlyingConn()
			_, _ = out.Write(append([]byte{byte(kind), 3}, data[:3]...))
			_, err = out.Write(append([]byte{0x80, byte(len(data) - 3)}, data[3:]...))
		default:
			err = ws.WriteMessage(kind, data)
		}
		if err != nil {
			return
		}
	}
}

func main() {
	http.HandleFunc("/hello", text(200, "hello"))
	http.HandleFunc("/page", text(200, "<!doctype html><title>a page</title>"))
	http.HandleFunc("/sum", sum)
	http.HandleFunc("/refuse", text(413, "too much"))
	http.HandleFunc("/refused", text(401, "no entry"))
	http.HandleFunc("/events", events)
	http.HandleFunc("/next", next)
	http.HandleFunc("/download", download)
	http.HandleFunc("/half", halfOf(strconv.Itoa(mib)))
	http.HandleFunc("/half-chunked", halfOf(""))
	http.HandleFunc("/hang", func(http.ResponseWriter, *http.Request) { select {} })
	http.HandleFunc("/die", die)
	http.HandleFunc("/last-close", func(w http.ResponseWriter, _ *http.Request) {
		lock.Lock()
		defer lock.Unlock()
		_ = json.NewEncoder(w).Encode(closed)
	})
	http.HandleFunc("/", converse)
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	log.Fatal(http.Serve(listener, nil))
}
