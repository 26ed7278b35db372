package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	objectSize     = 10_000
	objectInterval = 500 * time.Millisecond
)

// timed is a call or an event; times are milliseconds since the start of the run. An event starts when the server sends it.
type timed struct {
	Name    string  `json:"name"`
	StartMs float64 `json:"start_ms"`
	EndMs   float64 `json:"end_ms"`
	Bytes   uint64  `json:"bytes"`
}

// ticks receives the events of a Ticks call until stop is closed: none is missing, and all are in order.
func ticks(stream grpc.ClientStream, began time.Time, stop <-chan struct{}) ([]timed, error) {
	var found []timed
	for want := uint64(0); ; want++ {
		got := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(got); err != nil {
			return nil, err
		}
		now := time.Now()
		if len(got.Value) != 16 || binary.BigEndian.Uint64(got.Value) != want {
			return nil, fmt.Errorf("event %x instead of number %d", got.Value, want)
		}
		sent := time.Unix(0, int64(binary.BigEndian.Uint64(got.Value[8:])))
		found = append(found, timed{"event", millisBetween(began, sent), millisBetween(began, now), 16})
		select {
		case <-stop:
			return found, nil
		default:
		}
	}
}

// millisBetween compares wall clocks: `to` may be the time of another process on this machine.
func millisBetween(from, to time.Time) float64 {
	return float64(to.UnixNano()-from.UnixNano()) / 1e6
}

// object fetches an object in one message.
func object(ctx context.Context, conn *grpc.ClientConn, name string, size uint64, began time.Time) (timed, error) {
	start, got := time.Now(), new(wrapperspb.BytesValue)
	if err := conn.Invoke(ctx, "/smig.interop.Peer/Object", wrapperspb.UInt64(size), got); err != nil {
		return timed{}, err
	}
	end := time.Now()
	if !bytes.Equal(got.Value, chunk(0, int(size))) {
		return timed{}, fmt.Errorf("an object has %d other bytes", len(got.Value))
	}
	return timed{name, millisBetween(began, start), millisBetween(began, end), size}, nil
}

// large fetches a response of chunks messages, or of one message with as many bytes.
func large(ctx context.Context, conn *grpc.ClientConn, chunks uint64, isUnary bool, began time.Time) (timed, error) {
	if isUnary {
		return object(ctx, conn, "big", chunks*chunkSize, began)
	}
	start := time.Now()
	if _, err := big(ctx, conn, chunks); err != nil {
		return timed{}, err
	}
	return timed{"big", millisBetween(began, start), millisBetween(began, time.Now()), chunks * chunkSize}, nil
}

// beside fetches small objects at intervals during a watch: count of them alone, or as long as bigs large responses take, one
// after the other.
func beside(ctx context.Context, conn *grpc.ClientConn, count, bigs int, chunks uint64, isUnary bool) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began := time.Now()
	if _, err := object(ctx, conn, "small", objectSize, began); err != nil {
		return nil, err
	}
	events, err := open(ctx, conn, "Ticks", new(emptypb.Empty))
	if err != nil {
		return nil, err
	}
	type outcome struct {
		found []timed
		err   error
	}
	watched, downloaded, stop := make(chan outcome, 1), make(chan outcome, 1), make(chan struct{})
	go func() {
		found, err := ticks(events, began, stop)
		watched <- outcome{found, err}
	}()
	go func() {
		var found []timed
		for range make([]struct{}, bigs) {
			one, err := large(ctx, conn, chunks, isUnary, began)
			if err != nil {
				downloaded <- outcome{nil, err}
				return
			}
			found = append(found, one)
		}
		downloaded <- outcome{found, nil}
	}()
	var found []timed
	calls := make(chan outcome)
	fetch := func() {
		one, err := object(ctx, conn, "small", objectSize, began)
		calls <- outcome{[]timed{one}, err}
	}
	timer := time.NewTicker(objectInterval)
	defer timer.Stop()
	started, running := 0, 0
	for isDone := bigs == 0; !isDone || started < count || running > 0; {
		select {
		case <-timer.C:
			if !isDone || started < count {
				started, running = started+1, running+1
				go fetch()
			}
		case one := <-calls:
			running--
			if one.err != nil {
				return nil, one.err
			}
			found = append(found, one.found...)
		case all := <-downloaded:
			if all.err != nil {
				return nil, all.err
			}
			found, isDone = append(found, all.found...), true
		case seen := <-watched:
			return nil, fmt.Errorf("the watch: %w", seen.err)
		}
	}
	close(stop)
	seen := <-watched
	if seen.err != nil {
		return nil, fmt.Errorf("the watch: %w", seen.err)
	}
	return map[string]any{"objects": append(found, seen.found...), "failed": []string{}}, nil
}
