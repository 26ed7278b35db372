package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	objectSize     = 10_000
	objectInterval = 500 * time.Millisecond
	// largePatience is for one large response: one of 10.5 MB takes 9 s at 10 Mbit/s. patience is for everything else.
	largePatience = time.Minute
)

// timed is a call or an event; times are milliseconds since the start of the run. An event starts when the server sends it.
type timed struct {
	Name    string  `json:"name"`
	StartMs float64 `json:"start_ms"`
	EndMs   float64 `json:"end_ms"`
	Bytes   uint64  `json:"bytes"`
}

// within calls f with a context that ends after limit; then the error says what was awaited.
func within(ctx context.Context, limit time.Duration, awaited string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := f(ctx)
	if status.Code(err) == codes.DeadlineExceeded || err != nil && ctx.Err() == context.DeadlineExceeded {
		return fmt.Errorf("waited %v for %s: %w", limit, awaited, err)
	}
	return err
}

// watch is a Ticks call. A call has one deadline, for all of its events: so each event's is a timer, which ends the call.
type watch struct {
	stream grpc.ClientStream
	end    context.CancelFunc
}

func (w *watch) within(limit time.Duration, awaited string, f func() error) error {
	var late atomic.Bool
	timer := time.AfterFunc(limit, func() {
		late.Store(true)
		w.end()
	})
	defer timer.Stop()
	err := f()
	if err != nil && late.Load() {
		return fmt.Errorf("waited %v for %s: %w", limit, awaited, err)
	}
	return err
}

func newWatch(ctx context.Context, conn *grpc.ClientConn) (*watch, error) {
	ctx, end := context.WithCancel(ctx)
	w := &watch{end: end}
	return w, w.within(patience, "the start of the watch", func() (err error) {
		w.stream, err = open(ctx, conn, "Ticks", new(emptypb.Empty))
		return err
	})
}

// ticks receives the events until stop is closed: none is missing, and all are in order.
func (w *watch) ticks(began time.Time, stop <-chan struct{}) ([]timed, error) {
	var found []timed
	for want := uint64(0); ; want++ {
		got := new(wrapperspb.BytesValue)
		err := w.within(patience, fmt.Sprintf("event %d", want), func() error { return w.stream.RecvMsg(got) })
		if err != nil {
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

// millisBetween compares wall clocks, because `to` may be the time of another process on this machine. Within this process
// millis is better: no step of the clock changes what it measures.
func millisBetween(from, to time.Time) float64 {
	return float64(to.UnixNano()-from.UnixNano()) / 1e6
}

// object fetches an object in one message.
func object(ctx context.Context, conn *grpc.ClientConn, name string, size uint64, began time.Time) (timed, error) {
	start, got := millis(began), new(wrapperspb.BytesValue)
	limit := patience
	if size > objectSize {
		limit = largePatience
	}
	err := within(ctx, limit, fmt.Sprintf("an object of %d bytes", size), func(ctx context.Context) error {
		return conn.Invoke(ctx, "/smig.interop.Peer/Object", wrapperspb.UInt64(size), got)
	})
	if err != nil {
		return timed{}, err
	}
	end := millis(began)
	if !bytes.Equal(got.Value, chunk(0, int(size))) {
		return timed{}, fmt.Errorf("an object has %d other bytes", len(got.Value))
	}
	return timed{name, start, end, size}, nil
}

// large fetches a response of chunks messages, or of one message with as many bytes.
func large(ctx context.Context, conn *grpc.ClientConn, chunks uint64, isUnary bool, began time.Time) (timed, error) {
	if isUnary {
		return object(ctx, conn, "big", chunks*chunkSize, began)
	}
	start := millis(began)
	err := within(ctx, largePatience, fmt.Sprintf("a response of %d messages", chunks), func(ctx context.Context) error {
		_, err := big(ctx, conn, chunks)
		return err
	})
	if err != nil {
		return timed{}, err
	}
	return timed{"big", start, millis(began), chunks * chunkSize}, nil
}

// outcome is what a goroutine has fetched.
type outcome struct {
	found []timed
	err   error
}

// download fetches bigs large responses, one after the other.
func download(ctx context.Context, conn *grpc.ClientConn, bigs int, chunks uint64, isUnary bool, began time.Time) outcome {
	var found []timed
	for range make([]struct{}, bigs) {
		one, err := large(ctx, conn, chunks, isUnary, began)
		if err != nil {
			return outcome{nil, fmt.Errorf("the download: %w", err)}
		}
		found = append(found, one)
	}
	return outcome{found, nil}
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
	events, err := newWatch(ctx, conn)
	if err != nil {
		return nil, err
	}
	watched, downloaded, stop := make(chan outcome, 1), make(chan outcome, 1), make(chan struct{})
	go func() {
		found, err := events.ticks(began, stop)
		watched <- outcome{found, err}
	}()
	go func() { downloaded <- download(ctx, conn, bigs, chunks, isUnary, began) }()
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
