package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// chunkSize is the size of one message of a large response in bytes.
	chunkSize = 64 << 10
	// eventEvery is the time between two events of Watch.
	eventEvery = 100 * time.Millisecond
)

// chunk returns message number of a large response: its number, then bytes that depend on their position.
func chunk(number uint64, size int) []byte {
	data := make([]byte, size)
	binary.BigEndian.PutUint64(data, number)
	for at := 8; at < size; at++ {
		data[at] = byte(at*7 + at>>8)
	}
	return data
}

// peer is the service. endedHoldCount counts the Hold calls that clients have ended.
type peer struct{ endedHoldCount atomic.Uint64 }

func (p *peer) small(_ context.Context, request *wrapperspb.BytesValue) (any, error) {
	return request, nil
}

func (p *peer) object(_ context.Context, request *wrapperspb.UInt64Value) (any, error) {
	if request.Value < 8 || request.Value > 2<<20 {
		return nil, status.Error(codes.InvalidArgument, "8 bytes to 2 MiB")
	}
	return wrapperspb.Bytes(chunk(0, int(request.Value))), nil
}

func (p *peer) endedHolds(context.Context, *emptypb.Empty) (any, error) {
	return wrapperspb.UInt64(p.endedHoldCount.Load()), nil
}

// watch sends an event with its number ten times per second, indefinitely.
func (p *peer) watch(_ *emptypb.Empty, stream grpc.ServerStream) error {
	timer := time.NewTicker(eventEvery)
	defer timer.Stop()
	for number := uint64(0); ; number++ {
		if err := stream.SendMsg(wrapperspb.UInt64(number)); err != nil {
			return err
		}
		select {
		case <-timer.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// ticks sends an event with its number and the time of sending ten times per second, indefinitely.
func (p *peer) ticks(_ *emptypb.Empty, stream grpc.ServerStream) error {
	timer := time.NewTicker(eventEvery)
	defer timer.Stop()
	for number := uint64(0); ; number++ {
		event := binary.BigEndian.AppendUint64(nil, number)
		event = binary.BigEndian.AppendUint64(event, uint64(time.Now().UnixNano()))
		if err := stream.SendMsg(wrapperspb.Bytes(event)); err != nil {
			return err
		}
		select {
		case <-timer.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (p *peer) big(request *wrapperspb.UInt64Value, stream grpc.ServerStream) error {
	for number := uint64(0); number < request.Value; number++ {
		if err := stream.SendMsg(wrapperspb.Bytes(chunk(number, chunkSize))); err != nil {
			return err
		}
	}
	return nil
}

// upload checks and counts the received messages.
func (p *peer) upload(_ any, stream grpc.ServerStream) error {
	for count := uint64(0); ; count++ {
		got := new(wrapperspb.BytesValue)
		err := stream.RecvMsg(got)
		if err == io.EOF {
			return stream.SendMsg(wrapperspb.UInt64(count))
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(got.Value, chunk(count, chunkSize)) {
			return status.Errorf(codes.DataLoss, "message %d is not what was sent", count)
		}
	}
}

// fail sends the requested number of events, then a status with metadata; after zero events, the
// status is in the response's head.
func (p *peer) fail(request *wrapperspb.UInt64Value, stream grpc.ServerStream) error {
	for number := uint64(0); number < request.Value; number++ {
		if err := stream.SendMsg(wrapperspb.UInt64(number)); err != nil {
			return err
		}
	}
	stream.SetTrailer(metadata.Pairs("x-reason", "asked for", "x-detail-bin", "\x00\x01\xfe\xff"))
	return status.Error(codes.FailedPrecondition, failMessage)
}

// hold sends one event, the client's remaining time in milliseconds (0: no deadline); then nothing
// until the client ends the call.
func (p *peer) hold(_ *emptypb.Empty, stream grpc.ServerStream) error {
	defer p.endedHoldCount.Add(1)
	var left uint64
	if until, has := stream.Context().Deadline(); has {
		left = uint64(time.Until(until).Milliseconds())
	}
	if err := stream.SendMsg(wrapperspb.UInt64(left)); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// unary makes a method from a function with a request of type Q.
func unary[Q any](name string, call func(*peer, context.Context, *Q) (any, error)) grpc.MethodDesc {
	handler := func(server any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := new(Q)
		if err := decode(request); err != nil {
			return nil, err
		}
		return call(server.(*peer), ctx, request)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

// streaming makes a method from a function with a request of type Q and a streaming response.
func streaming[Q any](name string, call func(*peer, *Q, grpc.ServerStream) error) grpc.StreamDesc {
	handler := func(server any, stream grpc.ServerStream) error {
		request := new(Q)
		if err := stream.RecvMsg(request); err != nil {
			return err
		}
		return call(server.(*peer), request, stream)
	}
	return grpc.StreamDesc{StreamName: name, Handler: handler, ServerStreams: true}
}

var description = grpc.ServiceDesc{
	ServiceName: "smig.interop.Peer",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{
		unary("Small", (*peer).small), unary("Object", (*peer).object), unary("EndedHolds", (*peer).endedHolds),
	},
	Streams: []grpc.StreamDesc{
		streaming("Watch", (*peer).watch),
		streaming("Ticks", (*peer).ticks),
		streaming("Big", (*peer).big),
		streaming("Fail", (*peer).fail),
		streaming("Hold", (*peer).hold),
		{StreamName: "Upload", ClientStreams: true, Handler: func(server any, stream grpc.ServerStream) error {
			return server.(*peer).upload(nil, stream)
		}},
	},
}

func serve(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Println("listening on", listener.Addr())
	server := grpc.NewServer()
	server.RegisterService(&description, new(peer))
	return server.Serve(listener)
}
