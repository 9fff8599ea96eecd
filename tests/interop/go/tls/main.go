// A peer of TLS below WebSocket, on Go's crypto/tls: `tls server CERT KEY` listens at a free port of 127.0.0.1 and names it;
// `tls client ADDRESS CA TIMES` connects so many times, one after the other, with one session cache.
//
// Both do what the lines they receive say: `close` finishes our direction, and anything else is sent back behind
// `resumed ` or `new `. How each connection ends is one line of output. Go answers a KeyUpdate; it never begins one.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strconv"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) == 4 && os.Args[1] == "server" {
		server(os.Args[2], os.Args[3])
	} else if len(os.Args) == 5 && os.Args[1] == "client" {
		client(os.Args[2], os.Args[3], os.Args[4])
	} else {
		log.Fatal("tls server CERT KEY | tls client ADDRESS CA TIMES")
	}
}

func server(certificate, key string) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Printf("port %d\n", listener.Addr().(*net.TCPAddr).Port)
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	for {
		socket, err := listener.Accept()
		check(err)
		serve(tls.Server(socket, config))
	}
}

func client(address, authority, times string) {
	pem, err := os.ReadFile(authority)
	check(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		log.Fatal("no authority in ", authority)
	}
	count, err := strconv.Atoi(times)
	check(err)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	for i := 0; i < count; i++ {
		socket, err := net.Dial("tcp", address)
		check(err)
		serve(tls.Client(socket, config))
	}
}

// Obeys until the peer closes, or something is wrong.
func serve(conn *tls.Conn) {
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		fmt.Println("ended:", err)
		return
	}
	age := "new "
	if conn.ConnectionState().DidResume {
		age = "resumed "
	}
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			fmt.Println("ended: close_notify")
			return
		}
		if err != nil {
			fmt.Println("ended:", err)
			return
		}
		if line == "close\n" {
			err = conn.CloseWrite()
		} else {
			_, err = io.WriteString(conn, age+line)
		}
		if err != nil {
			fmt.Println("ended:", err)
			return
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
