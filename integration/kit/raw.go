package kit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Raw is one connection on which a test says exactly what goes over the wire.
type Raw struct {
	net.Conn

	t    testing.TB
	f    *kmsg.RequestFormatter
	corr int32
}

// Dial opens a raw connection.
func Dial(t testing.TB, addr string) *Raw {
	t.Helper()
	r, err := TryDial(t, addr)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TryDial opens a raw connection to where perhaps nobody listens yet.
func TryDial(t testing.TB, addr string) (*Raw, error) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return &Raw{Conn: c, t: t, f: kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))}, nil
}

// Send writes a request.
func (r *Raw) Send(req kmsg.Request) {
	r.t.Helper()
	if err := r.TrySend(req); err != nil {
		r.t.Fatal(err)
	}
}

// TrySend is Send to a server that may be gone.
func (r *Raw) TrySend(req kmsg.Request) error {
	r.corr++
	_, err := r.Write(r.f.AppendRequest(nil, req, r.corr))
	return err
}

// Receive reads the answer to a request.
func (r *Raw) Receive(req kmsg.Request) (kmsg.Response, error) {
	r.t.Helper()
	frame, err := r.Frame()
	if err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != r.corr {
		return nil, fmt.Errorf("correlation id %d, want %d", got, r.corr)
	}
	body := frame[4:]
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != 18 {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// Frame reads one frame without its length.
func (r *Raw) Frame() ([]byte, error) {
	_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// Call sends a request and returns its answer, or fails the test.
func (r *Raw) Call(req kmsg.Request) kmsg.Response {
	r.t.Helper()
	r.Send(req)
	resp, err := r.Receive(req)
	if err != nil {
		r.t.Fatalf("%T: %v", req, err)
	}
	return resp
}

// Try is Call on a connection that may break: the error is returned, and whether
// the request was done is then not known.
func (r *Raw) Try(req kmsg.Request) (kmsg.Response, error) {
	r.corr++
	if _, err := r.Write(r.f.AppendRequest(nil, req, r.corr)); err != nil {
		return nil, err
	}
	return r.Receive(req)
}

// Closed reports whether the server has closed the connection, waiting for it.
func (r *Raw) Closed() bool {
	_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
	var b [1]byte
	_, err := r.Read(b[:])
	return errors.Is(err, io.EOF) || err != nil && !isTimeout(err)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// Produce builds a Produce request for one partition.
func Produce(version int16, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 10000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

// Fetch builds a Fetch request for one partition, by topic name.
func Fetch(version int16, topic string, partition int32, offset int64, maxBytes int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = version, -1, 100, 1, maxBytes, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = partition, offset, maxBytes, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}
