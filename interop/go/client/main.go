// Command client fetches files concurrently with Go's net/http over TLS and compares their hashes.
//
//	client CA BASE-URL NAME=SHA256...
//
// It also drops a partly read body and continues on the same connection, and posts a body that a
// file server must refuse without affecting other streams.
package main

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var dialled int32

func newClient(ca string) *http.Client {
	pem, err := os.ReadFile(ca)
	if err != nil {
		log.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		log.Fatal("no certificate in ", ca)
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	return &http.Client{Transport: transport, Timeout: 60 * time.Second}
}

func request(client *http.Client, method, url string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return nil, err
	}
	trace := &httptrace.ClientTrace{TLSHandshakeDone: func(tls.ConnectionState, error) { atomic.AddInt32(&dialled, 1) }}
	resp, err := client.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err == nil && resp.ProtoMajor != 2 {
		resp.Body.Close()
		return nil, fmt.Errorf("%s was received over %s", url, resp.Proto)
	}
	return resp, err
}

func fetch(client *http.Client, url, want string) error {
	resp, err := request(client, "GET", url, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	digest := sha256.New()
	length, err := io.Copy(digest, resp.Body)
	if err != nil {
		return fmt.Errorf("%s after %d bytes: %w", url, length, err)
	}
	if got := fmt.Sprintf("%x", digest.Sum(nil)); got != want {
		return fmt.Errorf("%s: %d bytes with the wrong hash %s", url, length, got)
	}
	return nil
}

// dropHalfRead reads a part of a body and closes it: the transport resets the stream.
func dropHalfRead(client *http.Client, url string) error {
	resp, err := request(client, "GET", url, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.CopyN(io.Discard, resp.Body, 100_000)
	return err
}

// post sends a body that the server must refuse with a status from 400 to 499.
func post(client *http.Client, url string) error {
	resp, err := request(client, "POST", url, bytes.NewReader(make([]byte, 300_000)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 400 || resp.StatusCode > 499 {
		return fmt.Errorf("POST %s: status %d", url, resp.StatusCode)
	}
	return nil
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: client CA BASE-URL NAME=SHA256...")
	}
	client, base := newClient(os.Args[1]), os.Args[2]
	files := map[string]string{}
	for _, arg := range os.Args[3:] {
		name, hash, _ := strings.Cut(arg, "=")
		files[name] = hash
	}
	// One request first, so that all others find its connection.
	if err := fetch(client, base+"1k", files["1k"]); err != nil {
		log.Fatal(err)
	}
	var wait sync.WaitGroup
	errs := make(chan error, 1000)
	start := func(f func() error) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := f(); err != nil {
				errs <- err
			}
		}()
	}
	for round := 0; round < 3; round++ {
		for name, hash := range files {
			name, hash := name, hash
			start(func() error { return fetch(client, base+name, hash) })
		}
		start(func() error { return dropHalfRead(client, base+"50m") })
		start(func() error { return post(client, base+"1k") })
	}
	wait.Wait()
	if err := fetch(client, base+"1m", files["1m"]); err != nil {
		errs <- err
	}
	close(errs)
	failed := 0
	for err := range errs {
		failed++
		log.Print(err)
	}
	fmt.Printf("%d requests, %d failed, %d connections\n", 3*(len(files)+2)+2, failed, dialled)
	if failed > 0 {
		os.Exit(1)
	}
}
