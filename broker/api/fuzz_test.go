package api_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/api"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
	"strandline/metadata/watch"
)

// nobody is a cluster without topics whose controller refuses everything.
type nobody struct{}

func (nobody) Image() *image.Image { return image.Empty() }
func (nobody) Get(cluster.TopicPartition) (api.Partition, error) {
	return nil, errors.New("none")
}

func (nobody) Submit(context.Context, request.Request) (request.Result, error) {
	return nil, request.ErrNotController
}

func (nobody) Quorum() (watch.Quorum, error) { return watch.Quorum{Leader: cluster.NoBroker}, nil }

// FuzzServe: whatever a body holds, the handler answers with whole frames, says
// nothing, or closes the connection.
func FuzzServe(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, a := range wire.Supported() {
		for version := a.Lowest(); version <= a.Max; version++ {
			req := kmsg.RequestForKey(a.Key)
			req.SetVersion(version)
			b := req.AppendTo(nil)
			f.Add(a.Key, version, b)
			for i := range b {
				b[i] ^= byte(rnd.IntN(4))
			}
			f.Add(a.Key, version, b)
		}
	}
	draining := make(chan struct{})
	close(draining)
	conn := &api.Conn{Listener: "PLAINTEXT", Draining: draining}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a, ok := wire.Lookup(key)
		if !ok || version < a.Lowest() || version > a.Max {
			return
		}
		h := api.New(api.Config{Cluster: nobody{}, Replicas: nobody{}, Broker: config.Broker{LegacyClients: true}})
		defer func() { _ = h.Close() }()
		out := wire.NewSender(nil, wire.NewGate(nil, nil), &wire.Stats{}, &atomic.Uint64{}).NewOut()
		defer out.Free()
		q := &wire.Request{Key: key, Version: version, CorrelationID: 7, Body: body, Bytes: len(body)}
		d, err := h.Serve(context.Background(), conn, q, out)
		if err != nil {
			return
		}
		if d != nil {
			if err := d.Complete(context.Background(), out); err != nil {
				t.Fatal(err)
			}
		}
		if len(out.Buf) == 0 {
			return
		}
		if n := int(binary.BigEndian.Uint32(out.Buf)); n != len(out.Buf)-4 {
			t.Fatalf("frame of %d bytes says %d", len(out.Buf)-4, n)
		}
		resp := kmsg.ResponseForKey(key)
		resp.SetVersion(version)
		b := out.Buf[8:]
		if resp.IsFlexible() && key != wire.KeyAPIVersions {
			b = b[1:]
		}
		if err := resp.ReadFrom(b); err != nil {
			t.Fatalf("answer to %s %d does not decode: %v", a.Name, version, err)
		}
		if again := resp.AppendTo(nil); !reflect.DeepEqual(again, b) && key != wire.KeyFetch {
			t.Fatalf("answer to %s %d has more than its message", a.Name, version)
		}
	})
}
