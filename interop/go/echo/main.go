// Command echo reports each request as Go's net/http parsed it in the response field x-seen: cleartext HTTP/1.1.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			// The request is incomplete: abort the response.
			panic(http.ErrAbortHandler)
		}
		digest := sha256.Sum256(body)
		seen := fmt.Sprintf("%s %s %d %x", r.Method, r.RequestURI, len(body), digest[:8])
		w.Header().Set("x-seen", seen)
		fmt.Fprintf(w, "seen %s\n", seen)
	})}
	log.Fatal(server.Serve(listener))
}
