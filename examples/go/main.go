// A WebSocket server in Go over the library for C, with the sockets of Go.
//
// A call from Go into C costs more than the work on one small message. So one crossing takes all bytes of a read and
// returns all messages in them, and one takes all answers and returns the bytes to write, however many messages there are.
//
//	usage: echo ADDRESS CERT.pem KEY.pem
package main

/*
#cgo pkg-config: tautline
#include <stdlib.h>
#include <string.h>
#include "tautline.h"

// Longest message, and the room for messages that a crossing returns.
#define MOST 65536
#define ROOM (4 * MOST)

typedef struct {
	taut_code code;
	size_t out, got; // bytes written to `out` and `got`
	int more, over;  // whether to cross again, and whether the connection has ended
} turn_result;

static uint32_t get(const uint8_t *from) {
	return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void put(uint8_t *to, uint32_t value) {
	int i;
	for (i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (8 * i));
}

// One crossing. `in` are bytes of the peer. `send` are messages, each as flags and length (4 bytes each, the lowest first) and its bytes;
// `got` receives messages in that form. `out` receives bytes for the peer.
static turn_result turn(taut_ws *ws, uint64_t now, const uint8_t *in, size_t in_len, const uint8_t *send,
                        size_t send_len, uint8_t *got, uint8_t *out, size_t out_room) {
	turn_result result;
	taut_slice output;
	taut_ws_status status;
	memset(&result, 0, sizeof result);
	while (send_len >= 8 && result.code == TAUT_OK) {
		taut_message message;
		memset(&message, 0, sizeof message);
		message.size = sizeof message;
		message.flags = get(send);
		message.data = send + 8;
		message.len = get(send + 4);
		result.code = taut_ws_send(ws, &message);
		send += 8 + message.len;
		send_len -= 8 + message.len;
	}
	if (in_len > 0 && result.code == TAUT_OK) {
		taut_window window;
		result.code = taut_ws_window(ws, in_len, &window);
		if (result.code == TAUT_OK) {
			memcpy(window.data, in, in_len);
			result.code = taut_ws_filled(ws, in_len, now);
		}
	}
	while (result.code == TAUT_OK) {
		taut_ws_event event;
		if (ROOM - result.got < MOST + 8) {
			result.more = 1;
			break;
		}
		event.size = sizeof event;
		result.code = taut_ws_next(ws, &event);
		if (result.code != TAUT_OK || event.kind == TAUT_EVENT_NONE) break;
		if (event.kind == TAUT_EVENT_REQUEST) {
			result.code = event.is_upgrade ? taut_ws_upgrade(ws, NULL, 0) : taut_ws_respond(ws, 404, NULL, 0, NULL, 0);
		} else if (event.kind == TAUT_EVENT_MESSAGE) {
			put(got + result.got, event.flags);
			put(got + result.got + 4, (uint32_t)event.data.len);
			memcpy(got + result.got + 8, event.data.data, event.data.len);
			result.got += 8 + event.data.len;
		}
	}
	if (taut_ws_output(ws, &output) == TAUT_OK && output.len > 0) {
		result.out = output.len < out_room ? output.len : out_room;
		memcpy(out, output.data, result.out);
		taut_ws_written(ws, result.out);
	}
	status.size = sizeof status;
	if (taut_ws_get_status(ws, &status) == TAUT_OK) {
		result.more |= status.waiting > 0;
		result.over = status.is_over && status.waiting == 0;
	}
	return result;
}
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"log"
	"net"
	"os"
	"time"
	"unsafe"
)

var begin = time.Now()

// Milliseconds of a clock that never runs backwards.
func now() C.uint64_t { return C.uint64_t(time.Since(begin).Milliseconds()) }

func pointer(of []byte) *C.uint8_t {
	if len(of) == 0 {
		return nil
	}
	return (*C.uint8_t)(unsafe.Pointer(&of[0]))
}

func check(code C.taut_code, what string) {
	if code != C.TAUT_OK {
		log.Fatalf("%s: %s", what, C.GoString(C.taut_code_text(code)))
	}
}

// Returns the answers to a batch of messages, in the form of the batch. This one echoes.
func answer(messages []byte) []byte {
	answers := make([]byte, 0, len(messages))
	for len(messages) > 0 {
		flags, length := messages[0:4], binary.LittleEndian.Uint32(messages[4:8])
		payload := messages[8 : 8+length]
		answers = append(answers, flags...)
		answers = binary.LittleEndian.AppendUint32(answers, length)
		answers = append(answers, payload...)
		messages = messages[8+length:]
	}
	return answers
}

// Serves one connection until it ends.
func serve(conn net.Conn, ws *C.taut_ws) {
	defer conn.Close()
	defer C.taut_ws_free(ws)
	in, got, out := make([]byte, 32<<10), make([]byte, C.ROOM), make([]byte, 64<<10)
	for {
		var deadline C.uint64_t
		check(C.taut_ws_deadline(ws, &deadline), "deadline")
		if deadline == C.TAUT_NEVER {
			conn.SetReadDeadline(time.Time{})
		} else {
			conn.SetReadDeadline(begin.Add(time.Duration(deadline) * time.Millisecond))
		}
		read, err := conn.Read(in)
		if timeout, is := err.(net.Error); is && timeout.Timeout() {
			C.taut_ws_on_time(ws, now())
		} else if err != nil {
			C.taut_ws_ended(ws)
		}
		var answers []byte
		for first := true; ; first = false {
			if !first {
				read = 0
			}
			result := C.turn(ws, now(), pointer(in), C.size_t(read), pointer(answers), C.size_t(len(answers)),
				pointer(got), pointer(out), C.size_t(len(out)))
			if result.code != C.TAUT_OK {
				return
			}
			if _, err := conn.Write(out[:result.out]); err != nil {
				return
			}
			answers = answer(got[:result.got])
			if result.over != 0 {
				return
			}
			if len(answers) == 0 && result.more == 0 {
				break
			}
		}
		if err != nil {
			if timeout, is := err.(net.Error); !is || !timeout.Timeout() {
				return
			}
		}
	}
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: echo ADDRESS CERT.pem KEY.pem")
		os.Exit(2)
	}
	chain, key := C.CString(os.Args[2]), C.CString(os.Args[3])
	var tls *C.taut_tls_config
	var settings *C.taut_settings
	check(C.taut_tls_config_new(C.TAUT_SERVER, nil, &tls, nil), "TLS")
	check(C.taut_tls_config_certificate_files(tls, chain, key, nil), "certificate")
	check(C.taut_tls_config_apply(tls, nil), "certificate")
	check(C.taut_settings_new(C.TAUT_PRESET_UNTRUSTED_INTERNET, &settings, nil), "settings")
	check(C.taut_settings_set(settings, C.TAUT_SET_MAX_MESSAGE, C.MOST, nil), "settings")
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		var ws *C.taut_ws
		// Goroutines move between threads, so each connection has a context of its own.
		if code := C.taut_ws_server(tls, settings, nil, now(), &ws, nil); code != C.TAUT_OK {
			log.Print(C.GoString(C.taut_code_text(code)))
			conn.Close()
			continue
		}
		go serve(conn, ws)
	}
}
