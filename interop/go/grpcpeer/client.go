package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	smallSize   = 1024
	pause       = 50 * time.Millisecond
	patience    = 30 * time.Second
	failMessage = "no: 100 % ü"
)

func millis(since time.Time) float64 { return float64(time.Since(since).Nanoseconds()) / 1e6 }

// open starts a call with a streaming response.
func open(ctx context.Context, conn *grpc.ClientConn, method string, request proto.Message) (grpc.ClientStream, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/smig.interop.Peer/"+method)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil {
		return nil, err
	}
	return stream, stream.CloseSend()
}

// event receives the next event of a stream, which must be want.
func event(stream grpc.ClientStream, want uint64) error {
	got := new(wrapperspb.UInt64Value)
	if err := stream.RecvMsg(got); err != nil {
		return err
	}
	if got.Value != want {
		return fmt.Errorf("event %d instead of %d", got.Value, want)
	}
	return nil
}

// small makes one small call; returns its duration in milliseconds.
func small(ctx context.Context, conn *grpc.ClientConn, number uint64) (float64, error) {
	began, sent, got := time.Now(), chunk(number, smallSize), new(wrapperspb.BytesValue)
	if err := conn.Invoke(ctx, "/smig.interop.Peer/Small", wrapperspb.Bytes(sent), got); err != nil {
		return 0, err
	}
	if !bytes.Equal(got.Value, sent) {
		return 0, fmt.Errorf("a small call returned %d other bytes", len(got.Value))
	}
	return millis(began), nil
}

// big requests a response of count messages; returns its duration in seconds.
func big(ctx context.Context, conn *grpc.ClientConn, count uint64) (float64, error) {
	began := time.Now()
	stream, err := open(ctx, conn, "Big", wrapperspb.UInt64(count))
	if err != nil {
		return 0, err
	}
	for number := uint64(0); ; number++ {
		got := new(wrapperspb.BytesValue)
		err := stream.RecvMsg(got)
		if err == io.EOF && number == count {
			return millis(began) / 1e3, nil
		}
		if err != nil {
			return 0, fmt.Errorf("after %d messages: %w", number, err)
		}
		if !bytes.Equal(got.Value, chunk(number, chunkSize)) {
			return 0, fmt.Errorf("message %d is not what was sent", number)
		}
	}
}

// load makes small calls alone, then during large responses, while a watch runs.
func load(ctx context.Context, conn *grpc.ClientConn, bigs int, chunks uint64) (any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := open(ctx, conn, "Watch", new(emptypb.Empty))
	if err != nil {
		return nil, err
	}
	if err := event(events, 0); err != nil {
		return nil, err
	}
	var alone, beside, gaps, seconds []float64
	number := uint64(0)
	call := func(times *[]float64) error {
		took, err := small(ctx, conn, number)
		number++
		*times = append(*times, took)
		time.Sleep(pause)
		return err
	}
	for len(alone) < 30 {
		if err := call(&alone); err != nil {
			return nil, err
		}
	}
	watched, downloaded, stop := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() {
		last := time.Now()
		for want := uint64(1); ; want++ {
			if err := event(events, want); err != nil {
				watched <- err
				return
			}
			gaps = append(gaps, millis(last))
			last = time.Now()
			select {
			case <-stop:
				watched <- nil
				return
			default:
			}
		}
	}()
	go func() {
		for range make([]struct{}, bigs) {
			took, err := big(ctx, conn, chunks)
			if err != nil {
				downloaded <- err
				return
			}
			seconds = append(seconds, took)
		}
		downloaded <- nil
	}()
	for running := true; running; {
		if err := call(&beside); err != nil {
			return nil, err
		}
		select {
		case err := <-downloaded:
			if err != nil {
				return nil, err
			}
			running = false
		case err := <-watched:
			return nil, fmt.Errorf("the watch: %w", err)
		default:
		}
	}
	close(stop)
	if err := <-watched; err != nil {
		return nil, fmt.Errorf("the watch: %w", err)
	}
	return map[string]any{
		"small_alone_ms": alone, "small_beside_ms": beside, "watch_gaps_ms": gaps, "big_s": seconds,
	}, nil
}

func upload(ctx context.Context, conn *grpc.ClientConn, count uint64) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/smig.interop.Peer/Upload")
	if err != nil {
		return err
	}
	for number := uint64(0); number < count; number++ {
		if err := stream.SendMsg(wrapperspb.Bytes(chunk(number, chunkSize))); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return event(stream, count)
}

// fail makes the server end a stream with a status after count events.
func fail(ctx context.Context, conn *grpc.ClientConn, count uint64) error {
	stream, err := open(ctx, conn, "Fail", wrapperspb.UInt64(count))
	if err != nil {
		return err
	}
	for number := uint64(0); number < count; number++ {
		if err := event(stream, number); err != nil {
			return err
		}
	}
	found := status.Convert(event(stream, count))
	trailer := stream.Trailer()
	one := func(name, want string) bool { return len(trailer[name]) == 1 && trailer[name][0] == want }
	if found.Code() != codes.FailedPrecondition || found.Message() != failMessage ||
		!one("x-reason", "asked for") || !one("x-detail-bin", "\x00\x01\xfe\xff") {
		return fmt.Errorf("%v, %v", found, metadata.MD(trailer))
	}
	return nil
}

// deadline makes a call that exceeds its deadline; returns the remaining time at the server in milliseconds.
func deadline(ctx context.Context, conn *grpc.ClientConn) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	stream, err := open(ctx, conn, "Hold", new(emptypb.Empty))
	if err != nil {
		return 0, err
	}
	left := new(wrapperspb.UInt64Value)
	if err := stream.RecvMsg(left); err != nil {
		return 0, err
	}
	if left.Value < 1 || left.Value > 1000 {
		return 0, fmt.Errorf("the server received a deadline of %d ms", left.Value)
	}
	if code := status.Code(stream.RecvMsg(left)); code != codes.DeadlineExceeded {
		return 0, fmt.Errorf("%v instead of the deadline", code)
	}
	return left.Value, nil
}

func endedHoldCount(ctx context.Context, conn *grpc.ClientConn) (uint64, error) {
	count := new(wrapperspb.UInt64Value)
	err := conn.Invoke(ctx, "/smig.interop.Peer/EndedHolds", new(emptypb.Empty), count)
	return count.Value, err
}

// checks tests other features of gRPC: uploads, statuses, deadlines, cancellation.
func checks(ctx context.Context, conn *grpc.ClientConn) (any, error) {
	in := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	if _, err := small(ctx, conn, 0); err != nil {
		return nil, in("a small call", err)
	}
	if err := upload(ctx, conn, 32); err != nil {
		return nil, in("an upload", err)
	}
	for _, count := range []uint64{0, 3} {
		if err := fail(ctx, conn, count); err != nil {
			return nil, in(fmt.Sprintf("a status after %d events", count), err)
		}
	}
	before, err := endedHoldCount(ctx, conn)
	if err != nil {
		return nil, err
	}
	left, err := deadline(ctx, conn)
	if err != nil {
		return nil, in("a deadline", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	defer cancel()
	held, err := open(cancelled, conn, "Hold", new(emptypb.Empty))
	if err != nil {
		return nil, err
	}
	if err := event(held, 0); err != nil {
		return nil, in("a call without a deadline", err)
	}
	cancel()
	for until := time.Now().Add(patience); ; time.Sleep(pause) {
		now, err := endedHoldCount(ctx, conn)
		if err != nil {
			return nil, err
		}
		if now >= before+2 {
			break
		}
		if time.Now().After(until) {
			return nil, errors.New("the deadline or the cancellation does not reach the server")
		}
	}
	unknown := conn.Invoke(ctx, "/smig.interop.Peer/None", new(emptypb.Empty), new(emptypb.Empty))
	if code := status.Code(unknown); code != codes.Unimplemented {
		return nil, fmt.Errorf("an unknown method: %v", code)
	}
	return map[string]any{"checks": "good", "deadline_ms_at_server": left}, nil
}
