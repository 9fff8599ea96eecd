// Package extended opens WebSockets on streams of HTTP/2 (RFC 8441), with golang.org/x/net/http2.
package extended

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// Transport is a transport of HTTP/2 that counts its connections.
type Transport struct {
	http2.Transport
	Dials atomic.Int32
}

// New makes a transport that trusts the authorities of a file.
func New(caFile string) (*Transport, error) {
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("the file has no certificate")
	}
	transport := &Transport{}
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	transport.DialTLSContext = func(ctx context.Context, network, address string, config *tls.Config) (net.Conn, error) {
		transport.Dials.Add(1)
		return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
	}
	return transport, nil
}

// Open begins a WebSocket. The body of the response is what the server sends; the writer takes what the client sends.
func (transport *Transport) Open(url string, fields http.Header) (*http.Response, *io.PipeWriter, error) {
	reader, writer := io.Pipe()
	request, err := http.NewRequest(http.MethodConnect, url, reader)
	if err != nil {
		return nil, nil, err
	}
	for name, values := range fields {
		request.Header[name] = values
	}
	request.Header[":protocol"] = []string{"websocket"}
	request.Header.Set("Sec-Websocket-Version", "13")
	response, err := transport.RoundTrip(request)
	return response, writer, err
}
