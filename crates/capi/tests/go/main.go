// The library for C, used badly by a program in Go. It prints "passed" at the end.
//
//	usage: bad-use CA.pem CERT.pem KEY.pem
package main

/*
#cgo pkg-config: tautline
#include <stdlib.h>
#include <string.h>
#include "tautline.h"

extern uint32_t goVerify(void *user, void *peer);

// Go declares no pointer to const.
static uint32_t decide(void *user, const taut_tls_peer *peer) { return goVerify(user, (void *)peer); }

static taut_code verify(const taut_tls_config *config, size_t user) {
	return taut_tls_config_verify(config, decide, (void *)user, NULL, NULL);
}

// One operation over memory of Go, which cgo keeps in its place during the call alone.
static taut_code run(taut_code (*operation)(taut_tls *, taut_tls_io *), taut_tls *tls, uint8_t *in, size_t in_len,
                     uint8_t *out, size_t out_len, taut_tls_io *result) {
	memset(result, 0, sizeof *result);
	result->size = sizeof *result;
	result->in.data = result->plain.data = in;
	result->in.len = result->plain.len = in_len;
	result->out.data = out;
	result->out.len = out_len;
	return operation(tls, result);
}

static taut_code handshake(taut_tls *tls, uint8_t *in, size_t in_len, uint8_t *out, size_t out_len, taut_tls_io *result) {
	return run(taut_tls_handshake, tls, in, in_len, out, out_len, result);
}

static taut_code seal(taut_tls *tls, const uint8_t *data, size_t len, uint8_t *out, size_t out_len, size_t *written) {
	taut_tls_io io;
	taut_code code;
	memset(&io, 0, sizeof io);
	io.size = sizeof io;
	code = taut_tls_seal_into(tls, data, len, out, out_len, &io);
	*written = io.written;
	return code;
}

static taut_code seal_with_size(taut_tls *tls, size_t size) {
	taut_tls_io io;
	memset(&io, 0, sizeof io);
	io.size = size;
	return taut_tls_seal(tls, &io);
}

static taut_code send_with_size(taut_ws *ws, size_t size) {
	taut_message message;
	memset(&message, 0, sizeof message);
	message.size = size;
	return taut_ws_send(ws, &message);
}
*/
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// Answers of the verification callback, by the number that it gets.
const (
	accepts = iota
	panics
	panicsAndRecovers
	waits
)

var (
	entered = make(chan bool)
	letGo   = make(chan bool)
)

//export goVerify
func goVerify(user, peer unsafe.Pointer) (decision C.uint32_t) {
	switch uintptr(user) {
	case panics:
		panic("on purpose")
	case panicsAndRecovers:
		defer func() { decision = 0; recover() }()
		panic("on purpose")
	case waits:
		entered <- true
		<-letGo
	}
	return C.TAUT_ACCEPT
}

func need(what string, is, wanted C.taut_code) {
	if is != wanted {
		_, _, line, _ := runtime.Caller(1)
		fmt.Fprintf(os.Stderr, "line %d: %s: %s\n", line, what, C.GoString(C.taut_code_text(is)))
		os.Exit(1)
	}
}

func pointer(of []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(of)) }

func config(role C.uint32_t, files ...string) *C.taut_tls_config {
	var made *C.taut_tls_config
	first := C.CString(files[0])
	defer C.free(unsafe.Pointer(first))
	need("config", C.taut_tls_config_new(role, nil, &made, nil), C.TAUT_OK)
	if len(files) == 2 {
		second := C.CString(files[1])
		defer C.free(unsafe.Pointer(second))
		need("certificate", C.taut_tls_config_certificate_files(made, first, second, nil), C.TAUT_OK)
	} else {
		need("roots", C.taut_tls_config_roots_file(made, first, nil), C.TAUT_OK)
	}
	return made
}

func session(of *C.taut_tls_config, host string) *C.taut_tls {
	var made *C.taut_tls
	name := C.CString(host)
	defer C.free(unsafe.Pointer(name))
	if host == "" {
		need("session", C.taut_tls_new(of, nil, &made, nil), C.TAUT_OK)
	} else {
		need("session", C.taut_tls_new(of, name, &made, nil), C.TAUT_OK)
	}
	return made
}

// Completes a handshake in memory. Returns the code of the end that fails, or TAUT_OK.
func shake(client, server *C.taut_tls) C.taut_code {
	ends, input := [2]*C.taut_tls{client, server}, [2][]byte{}
	var done [2]bool
	for turn := 0; !done[0] || !done[1]; turn++ {
		out := make([]byte, 1<<16)
		var io C.taut_tls_io
		code := C.handshake(ends[turn%2], pointer(input[turn%2]), C.size_t(len(input[turn%2])), pointer(out), 1<<16, &io)
		if code != C.TAUT_OK {
			return code
		}
		input[turn%2] = input[turn%2][io.taken:]
		input[1-turn%2] = append(input[1-turn%2], out[:io.written]...)
		done[turn%2] = io.want == C.TAUT_WANT_NONE
	}
	return C.TAUT_OK
}

func seal(tls *C.taut_tls, room int) C.taut_code {
	data, out := make([]byte, 64), make([]byte, room)
	var written C.size_t
	return C.seal(tls, pointer(data), 64, pointer(out), C.size_t(room), &written)
}

// Two ends, whose client decides about the certificate by `user`.
func ends(user C.size_t) (client, server *C.taut_tls) {
	accepting, connecting := config(C.TAUT_SERVER, os.Args[2], os.Args[3]), config(C.TAUT_CLIENT, os.Args[1])
	defer C.taut_tls_config_release(accepting)
	defer C.taut_tls_config_release(connecting)
	need("verify", C.verify(connecting, user), C.TAUT_OK)
	need("apply", C.taut_tls_config_apply(accepting, nil), C.TAUT_OK)
	need("apply", C.taut_tls_config_apply(connecting, nil), C.TAUT_OK)
	return session(connecting, "localhost"), session(accepting, "")
}

// Two ends, and the result of their handshake.
func pair(user C.size_t) (client, server *C.taut_tls, code C.taut_code) {
	client, server = ends(user)
	return client, server, shake(client, server)
}

func free(ends ...*C.taut_tls) {
	for _, end := range ends {
		need("free", C.taut_tls_free(end), C.TAUT_OK)
	}
}

func nullAndWrongSizes() {
	var io C.taut_tls_io
	need("no session", C.handshake(nil, nil, 0, nil, 0, &io), C.TAUT_ERR_NULL)
	need("no windows", C.taut_tls_open(nil, nil), C.TAUT_ERR_NULL)
	need("no place", C.taut_tls_config_new(C.TAUT_SERVER, nil, nil, nil), C.TAUT_ERR_NULL)
	need("nothing to free", C.taut_tls_free(nil), C.TAUT_OK)
	client, server, code := pair(accepts)
	need("handshake", code, C.TAUT_OK)
	need("size 0", C.seal_with_size(client, 0), C.TAUT_ERR_SIZE)
	need("size 8", C.seal_with_size(client, 8), C.TAUT_ERR_SIZE)
	var written C.size_t
	data := make([]byte, 200)
	need("a length that no memory has", C.seal(client, pointer(data), 1<<63, nil, 0, &written), C.TAUT_ERR_SIZE)
	need("one memory for both", C.seal(client, pointer(data), 64, pointer(data), 200, &written), C.TAUT_ERR_OVERLAP)
	need("a small window", seal(client, 1), C.TAUT_OK)
	need("the rest", seal(client, 200), C.TAUT_OK)
	free(client, server)
}

func callsAfterClose() {
	client, server, code := pair(accepts)
	need("handshake", code, C.TAUT_OK)
	var io C.taut_tls_io
	io.size = C.sizeof_taut_tls_io
	need("close", C.taut_tls_close(client, &io), C.TAUT_OK)
	need("seal after close", seal(client, 200), C.TAUT_ERR_STATE)
	free(client, server)
	var ws *C.taut_ws
	need("connection", C.taut_ws_server(nil, nil, nil, 0, &ws, nil), C.TAUT_OK)
	need("end", C.taut_ws_ended(ws), C.TAUT_OK)
	need("send after the end", C.send_with_size(ws, C.sizeof_taut_message), C.TAUT_ERR_CLOSED)
	need("wrong size", C.send_with_size(ws, 1), C.TAUT_ERR_SIZE)
	need("more than there is", C.taut_ws_written(ws, 1000), C.TAUT_ERR_SIZE)
	need("free", C.taut_ws_free(ws), C.TAUT_OK)
}

func twoThreadsAtOnce() {
	client, server, code := pair(accepts)
	need("handshake", code, C.TAUT_OK)
	var both sync.WaitGroup
	for thread := 0; thread < 2; thread++ {
		both.Add(1)
		go func() {
			defer both.Done()
			runtime.LockOSThread()
			for call := 0; call < 20_000; call++ {
				if code := seal(client, 200); code != C.TAUT_ERR_BUSY {
					need("seal", code, C.TAUT_OK)
				}
			}
		}()
	}
	both.Wait()
	need("seal", seal(client, 200), C.TAUT_OK)
	free(client, server)
}

func callbacksThatPanic() {
	client, server, code := pair(panicsAndRecovers)
	need("a callback that recovers", code, C.TAUT_ERR_CERTIFICATE)
	free(client, server)
	// A panic that leaves the callback skips the library, so its session stays in the call for ever.
	client, server = ends(panics)
	func() {
		defer func() {
			if recover() == nil {
				need("the panic", C.TAUT_OK, C.TAUT_ERR_CALLBACK)
			}
		}()
		shake(client, server)
	}()
	need("the session", seal(client, 200), C.TAUT_ERR_BUSY)
	need("free", C.taut_tls_free(client), C.TAUT_ERR_BUSY)
	free(server)
	client, server, code = pair(accepts)
	need("the next connection", code, C.TAUT_OK)
	free(client, server)
}

func aCallbackThatDoesNotReturn() {
	client, server := ends(waits)
	code := make(chan C.taut_code)
	go func() { code <- shake(client, server) }()
	select {
	case <-entered:
	case <-time.After(time.Minute):
		need("the callback", C.TAUT_ERR_TIMEOUT, C.TAUT_OK)
	}
	need("another call", seal(client, 200), C.TAUT_ERR_BUSY)
	need("free", C.taut_tls_free(client), C.TAUT_ERR_BUSY)
	other, peer, established := pair(accepts)
	need("another connection", established, C.TAUT_OK)
	letGo <- true
	need("the handshake", <-code, C.TAUT_OK)
	free(client, server, other, peer)
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: bad-use CA.pem CERT.pem KEY.pem")
		os.Exit(2)
	}
	nullAndWrongSizes()
	callsAfterClose()
	twoThreadsAtOnce()
	callbacksThatPanic()
	aCallbackThatDoesNotReturn()
	fmt.Println("passed")
}
