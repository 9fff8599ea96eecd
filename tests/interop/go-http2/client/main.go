// The client over HTTP/2 of README.md, with golang.org/x/net/http2.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"tautline.example/http2/extended"
)

var sizes = []int{0, 1, 125, 126, 127, 4096, 65535, 65536, 1 << 20}

const (
	opText   = 1
	opBinary = 2
	opClose  = 8
)

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

// A WebSocket on a stream.
type socket struct {
	up   io.WriteCloser
	down *bufio.Reader
}

func open(transport *extended.Transport, url string) socket {
	response, up, err := transport.Open(url, http.Header{})
	must(err)
	if response.StatusCode != 200 {
		check(fmt.Sprint("status ", response.StatusCode), false)
	}
	return socket{up, bufio.NewReader(response.Body)}
}

// Sends a whole message or a control frame.
func (ws socket) send(opcode byte, data []byte) {
	mask := [4]byte{1, 2, 3, byte(len(data))}
	frame := []byte{0x80 | opcode}
	switch {
	case len(data) < 126:
		frame = append(frame, 0x80|byte(len(data)))
	case len(data) < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(len(data)))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(len(data)))
	}
	frame = append(frame, mask[:]...)
	for at, octet := range data {
		frame = append(frame, octet^mask[at%4])
	}
	_, err := ws.up.Write(frame)
	must(err)
}

// Receives a frame, which has to be final.
func (ws socket) receive() (byte, []byte) {
	head := [2]byte{}
	_, err := io.ReadFull(ws.down, head[:])
	must(err)
	if head[0]&0xf0 != 0x80 || head[1]&0x80 != 0 {
		check("a frame that is final and not masked", false)
	}
	size := uint64(head[1])
	switch size {
	case 126:
		var size16 uint16
		must(binary.Read(ws.down, binary.BigEndian, &size16))
		size = uint64(size16)
	case 127:
		must(binary.Read(ws.down, binary.BigEndian, &size))
	}
	data := make([]byte, size)
	_, err = io.ReadFull(ws.down, data)
	must(err)
	return head[0] & 0xf, data
}

// Whether a message comes back. It is sent meanwhile, since windows may be smaller.
func (ws socket) echoes(opcode byte, data []byte) bool {
	go ws.send(opcode, data)
	kind, got := ws.receive()
	return kind == opcode && bytes.Equal(got, data)
}

func main() {
	url, ca := os.Args[1], os.Args[2]
	time.AfterFunc(2*time.Minute, func() { check("done within two minutes", false) })
	transport, err := extended.New(ca)
	must(err)
	client := http.Client{Transport: transport}
	get := func() bool {
		page, err := client.Get(url + "/")
		must(err)
		body, err := io.ReadAll(page.Body)
		must(err)
		return page.StatusCode == 200 && page.ProtoMajor == 2 && bytes.Contains(body, []byte("WebSocket"))
	}
	check("GET", get())
	for _, size := range []int{0, 1, 16384, 65536} {
		answer, err := client.Post(url+"/echo", "application/octet-stream", bytes.NewReader(payload(size)))
		must(err)
		body, err := io.ReadAll(answer.Body)
		must(err)
		check(fmt.Sprint("POST ", size), answer.StatusCode == 200 && bytes.Equal(body, payload(size)))
	}

	ws := open(transport, url+"/socket")
	for _, message := range []string{"hello", "", "Grüße, 世界 🦀"} {
		check(fmt.Sprintf("text %q", message), ws.echoes(opText, []byte(message)))
	}
	for _, size := range sizes {
		check(fmt.Sprintf("binary %d", size), ws.echoes(opBinary, payload(size)))
	}
	sockets := []socket{}
	for i := 0; i < 20; i++ {
		sockets = append(sockets, open(transport, url+"/socket"))
	}
	for i, other := range sockets {
		other.send(opText, []byte(fmt.Sprint("socket ", i)))
	}
	same := true
	for i := range sockets {
		_, got := sockets[len(sockets)-1-i].receive()
		same = same && string(got) == fmt.Sprint("socket ", len(sockets)-1-i)
	}
	check("20 sockets at once", same)
	check("GET beside sockets", get())

	ws.send(opClose, append([]byte{4001 >> 8, 4001 & 0xff}, "bye"...))
	kind, got := ws.receive()
	check("close is answered with its code", kind == opClose && binary.BigEndian.Uint16(got) == 4001)
	_, err = ws.down.ReadByte()
	check("its stream has ended", err == io.EOF)
	check("another socket stays", sockets[3].echoes(opText, []byte("still")))
	response, _, err := transport.Open(url+"/socket", http.Header{"Sec-Websocket-Version": {"13"}, "Origin": {"https://elsewhere.example"}})
	must(err)
	check("a foreign origin is refused", response.StatusCode == 403)
	check("one connection", transport.Dials.Load() == 1)
}
