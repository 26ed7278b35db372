// An HTTP/3 peer of quic-go: serve DIRECTORY ADDRESS CERTIFICATE KEY, or client ORIGIN CERTIFICATE.
//
// The client sends the requests that the lab writes to its standard input, all over one connection, and reports on standard
// output: one line each way, with the number of the request.
//
//	get ID PATH SIZE, post ID PATH SIZE, cancel ID
//	head ID, data ID BYTES, end ID, damaged ID, error ID TEXT
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/quic-go/quic-go/http3"
)

func main() {
	switch {
	case len(os.Args) == 6 && os.Args[1] == "serve":
		serve(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	case len(os.Args) == 4 && os.Args[1] == "client":
		client(os.Args[2], os.Args[3])
	default:
		log.Fatal("usage: serve DIRECTORY ADDRESS CERTIFICATE KEY | client ORIGIN CERTIFICATE")
	}
}

func serve(directory, address, certificate, key string) {
	files := http.FileServer(http.Dir(directory))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				w.WriteHeader(http.StatusBadRequest)
			}
			return
		}
		files.ServeHTTP(w, r)
	})
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		log.Fatal(err)
	}
	server := http3.Server{
		Addr:      address,
		Handler:   handler,
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}}),
	}
	fmt.Println("serving")
	log.Fatal(server.ListenAndServe())
}

// reports writes lines, one at a time.
type reports struct {
	sync.Mutex
}

func (r *reports) line(format string, values ...any) {
	r.Lock()
	defer r.Unlock()
	fmt.Printf(format+"\n", values...)
}

func client(origin, certificate string) {
	pem, err := os.ReadFile(certificate)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		log.Fatal("no certificate in ", certificate)
	}
	transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	var (
		out     reports
		lock    sync.Mutex
		cancels = map[string]context.CancelFunc{}
	)
	out.line("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 2 && words[0] == "cancel":
			lock.Lock()
			if cancel, found := cancels[words[1]]; found {
				cancel()
			}
			lock.Unlock()
		case len(words) == 4:
			ctx, cancel := context.WithCancel(context.Background())
			lock.Lock()
			cancels[words[1]] = cancel
			lock.Unlock()
			go func() {
				err := transfer(ctx, transport, origin, words, &out)
				if errors.Is(err, errDamaged) {
					out.line("damaged %s", words[1])
				} else if err != nil {
					out.line("error %s %s", words[1], strings.ReplaceAll(err.Error(), "\n", " "))
				} else {
					out.line("end %s", words[1])
				}
				lock.Lock()
				delete(cancels, words[1])
				lock.Unlock()
				cancel()
			}()
		default:
			log.Fatalf("not a request: %q", lines.Text())
		}
	}
}

// errDamaged says that a body is not the content that it should be.
var errDamaged = errors.New("the body is damaged")

func transfer(ctx context.Context, transport *http3.Transport, origin string, words []string, out *reports) error {
	size, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil {
		return err
	}
	method, id := http.MethodGet, words[1]
	var body io.Reader
	if words[0] == "post" {
		method, body = http.MethodPost, io.LimitReader(newContent(), size)
	}
	request, err := http.NewRequestWithContext(ctx, method, origin+words[2], body)
	if err != nil {
		return err
	}
	if body != nil {
		request.ContentLength = size
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	out.line("head %s", id)
	content, chunk, expected := newContent(), make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		read, err := response.Body.Read(chunk)
		if read > 0 {
			if _, fail := io.ReadFull(content, expected[:read]); fail != nil || string(expected[:read]) != string(chunk[:read]) {
				return errDamaged
			}
			out.line("data %s %d", id, read)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// content is the byte stream of all bodies of the lab: xorshift64.
type content struct {
	state uint64
	word  [8]byte
	used  int
}

func newContent() *content { return &content{state: 0x9e3779b97f4a7c15, used: 8} }

func (c *content) Read(out []byte) (int, error) {
	for at := 0; at < len(out); {
		if c.used == 8 {
			c.state ^= c.state << 13
			c.state ^= c.state >> 7
			c.state ^= c.state << 17
			binary.LittleEndian.PutUint64(c.word[:], c.state)
			c.used = 0
		}
		copied := copy(out[at:], c.word[c.used:])
		at, c.used = at+copied, c.used+copied
	}
	return len(out), nil
}
