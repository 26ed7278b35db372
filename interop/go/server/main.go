// Command server serves a directory with Go's net/http over TLS: the standard library's HTTP/2.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: server DIR CERT KEY")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	files := http.FileServer(http.Dir(os.Args[1]))
	mux := http.NewServeMux()
	mux.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// http.FileServer would redirect to "./", which no other server here does.
		if r.URL.Path == "/index.html" {
			r.URL.Path = "/"
		}
		w.Header().Set("Trailer", "x-proto")
		files.ServeHTTP(w, r)
		w.Header().Set("x-proto", r.Proto)
	}))
	mux.Handle("/upload", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		digest := sha256.New()
		length, err := io.Copy(digest, r.Body)
		fmt.Fprintf(w, "%d %x %v", length, digest.Sum(nil), err)
	}))
	fmt.Printf("listening on https://%s\n", listener.Addr())
	log.Fatal(http.ServeTLS(listener, mux, os.Args[2], os.Args[3]))
}
