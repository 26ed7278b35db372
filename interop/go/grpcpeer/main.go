// Command grpcpeer is a gRPC client and server without smig, for interop/gateway. The messages are protobuf's
// well-known wrappers: no code is generated. interop/tonic is the equivalent in Rust, but for `beside`, which
// interop/one-connection calls.
//
//	grpcpeer server ADDRESS
//	grpcpeer client URL checks
//	grpcpeer client URL load BIGS CHUNKS
//	grpcpeer client URL beside COUNT BIGS CHUNKS [unary]
//
// URL is http://ADDRESS, or https://ADDRESS with the CA's file in GRPCPEER_CA.
package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log"
	"net/url"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

func connect(text string) (*grpc.ClientConn, error) {
	target, err := url.Parse(text)
	if err != nil {
		return nil, err
	}
	secret := insecure.NewCredentials()
	if target.Scheme == "https" {
		pem, err := os.ReadFile(os.Getenv("GRPCPEER_CA"))
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("no certificate in GRPCPEER_CA")
		}
		secret = credentials.NewClientTLSFromCert(pool, "")
	}
	return grpc.NewClient("passthrough:///"+target.Host, grpc.WithTransportCredentials(secret))
}

func run(words []string) (any, error) {
	if len(words) == 2 && words[0] == "server" {
		return nil, serve(words[1])
	}
	if len(words) < 3 || words[0] != "client" {
		return nil, errors.New("server ADDRESS, client URL checks, client URL load BIGS CHUNKS, or client URL beside COUNT BIGS CHUNKS [unary]")
	}
	conn, err := connect(words[1])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx := context.Background()
	if words[2] == "checks" {
		return checks(ctx, conn)
	}
	var numbers []int
	arguments, isUnary := words[3:], words[len(words)-1] == "unary"
	if isUnary {
		arguments = arguments[:len(arguments)-1]
	}
	for _, word := range arguments {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, number)
	}
	switch {
	case words[2] == "load" && len(numbers) == 2:
		return load(ctx, conn, numbers[0], uint64(numbers[1]))
	case words[2] == "beside" && len(numbers) == 3:
		return beside(ctx, conn, numbers[0], numbers[1], uint64(numbers[2]), isUnary)
	}
	return nil, errors.New("checks, load BIGS CHUNKS, or beside COUNT BIGS CHUNKS [unary]")
}

func main() {
	found, err := run(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}
