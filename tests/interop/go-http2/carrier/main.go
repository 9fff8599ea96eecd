// Carries WebSockets of HTTP/1.1 without TLS to a server over streams of HTTP/2 with TLS: carrier PORT URL CA_FILE.
//
// It reads no frames: all that the client of HTTP/1.1 sends reaches the server as it is, and so does what the server sends.
package main

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"tautline.example/http2/extended"
)

// RFC 6455, section 1.3.
const suffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func carry(conn net.Conn, transport *extended.Transport, url string) error {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return err
	}
	key := request.Header.Get("Sec-Websocket-Key")
	for _, name := range []string{"Connection", "Upgrade", "Sec-Websocket-Key", "Pragma", "Cache-Control"} {
		request.Header.Del(name)
	}
	response, up, err := transport.Open(url+request.URL.RequestURI(), request.Header)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		_, err = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nConnection: close\r\n\r\n", response.Status)
		return err
	}
	accept := sha1.Sum([]byte(key + suffix))
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(accept[:]) + "\r\n"
	for name, values := range response.Header {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			head += name + ": " + strings.Join(values, ", ") + "\r\n"
		}
	}
	if _, err = conn.Write([]byte(head + "\r\n")); err != nil {
		return err
	}
	go func() {
		// The end of the client's direction ends that of the stream.
		_, err := io.Copy(up, reader)
		up.CloseWithError(err)
	}()
	_, err = io.Copy(conn, response.Body)
	return err
}

func main() {
	transport, err := extended.New(os.Args[3])
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	must(err)
	fmt.Println("ready")
	for {
		conn, err := listener.Accept()
		must(err)
		go func() {
			if err := carry(conn, transport, os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			if dials := transport.Dials.Load(); dials > 1 {
				fmt.Fprintln(os.Stderr, dials, "connections")
			}
		}()
	}
}
