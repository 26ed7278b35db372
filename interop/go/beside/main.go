// Command beside requests a small file at intervals with Go's net/http over TLS, alone or beside a large file, all on one
// connection. It compares every byte's hash, and prints what it measured as one JSON object.
//
//	beside CA BASE-URL HASHES COUNT [BIG]
//
// HASHES is a file of lines "SHA256 NAME". The small files are small-1 to small-COUNT, one each half second; BIG is requested
// half a second before the first. Without it, small-0 opens the connection.
package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const interval = 500 * time.Millisecond

// object is one completed request; times are milliseconds since the start of the run.
type object struct {
	Name    string  `json:"name"`
	StartMs float64 `json:"start_ms"`
	EndMs   float64 `json:"end_ms"`
	Bytes   int64   `json:"bytes"`
}

type run struct {
	client *http.Client
	base   string
	hashes map[string]string
	began  time.Time
	wait   sync.WaitGroup
	lock   sync.Mutex
	found  []object
	failed []string
}

func newClient(ca string) (*http.Client, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", ca)
	}
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}, nil
}

func readHashes(path string) (map[string]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	hashes := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		hash, name, _ := strings.Cut(lines.Text(), " ")
		hashes[name] = hash
	}
	return hashes, lines.Err()
}

func (r *run) sinceBegan() float64 { return float64(time.Since(r.began).Nanoseconds()) / 1e6 }

func (r *run) fetch(name string) (object, error) {
	done := object{Name: name, StartMs: r.sinceBegan()}
	resp, err := r.client.Get(r.base + name)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		return done, fmt.Errorf("%s: status %d over %s", name, resp.StatusCode, resp.Proto)
	}
	digest := sha256.New()
	done.Bytes, err = io.Copy(digest, resp.Body)
	done.EndMs = r.sinceBegan()
	if err != nil {
		return done, fmt.Errorf("%s after %d bytes: %w", name, done.Bytes, err)
	}
	if got := fmt.Sprintf("%x", digest.Sum(nil)); got != r.hashes[name] {
		return done, fmt.Errorf("%s: %d bytes with the wrong hash %s", name, done.Bytes, got)
	}
	return done, nil
}

// start requests a file in the background.
func (r *run) start(name string) {
	r.wait.Add(1)
	go func() {
		defer r.wait.Done()
		done, err := r.fetch(name)
		r.lock.Lock()
		defer r.lock.Unlock()
		if err != nil {
			r.failed = append(r.failed, err.Error())
			return
		}
		r.found = append(r.found, done)
	}()
}

func main() {
	if len(os.Args) != 5 && len(os.Args) != 6 {
		log.Fatal("usage: beside CA BASE-URL HASHES COUNT [BIG]")
	}
	client, err := newClient(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	hashes, err := readHashes(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	count, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	r := &run{client: client, base: os.Args[2], hashes: hashes, began: time.Now()}
	if len(os.Args) == 6 {
		r.start(os.Args[5])
	} else if _, err := r.fetch("small-0"); err != nil {
		log.Fatal(err)
	}
	for number := 1; number <= count; number++ {
		time.Sleep(interval)
		r.start(fmt.Sprintf("small-%d", number))
	}
	r.wait.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"objects": r.found, "failed": r.failed}); err != nil {
		log.Fatal(err)
	}
}
