package api

import (
	"net"
	"strconv"
	"unsafe"

	"strandline/broker/group"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/image"
)

// endpoint is where clients of one listener reach a broker.
type endpoint struct {
	id   int32
	host string
	port int32
	rack *string
}

// endpointOf finds a broker's endpoint for a listener; "" takes the first.
func endpointOf(img *image.Image, id cluster.BrokerID, listener string) (endpoint, bool) {
	b, ok := img.Broker(id)
	if !ok {
		return endpoint{}, false
	}
	return endpointOn(b, listener)
}

func endpointOn(b *image.Broker, listener string) (endpoint, bool) {
	e := endpoint{id: int32(b.ID)}
	if b.Rack != "" {
		e.rack = &b.Rack
	}
	for _, l := range b.Listeners {
		if l.Name == listener || listener == "" {
			e.host, e.port = l.Host, l.Port
			return e, true
		}
	}
	return endpoint{}, false
}

// clientOf is who sent a request, its address in the form that Java writes.
func clientOf(c *Conn, q *wire.Request) group.Client {
	host, _, err := net.SplitHostPort(c.Remote)
	if err != nil {
		host = c.Remote
	}
	return group.Client{ID: string(q.ClientID), Host: "/" + host}
}

// controllerFor is the broker that admin clients send their requests to: the
// controller where it is a live broker, else any live one, since each forwards.
func controllerFor(img *image.Image, listener string) int32 {
	found := int32(cluster.NoBroker)
	for _, b := range img.Brokers() {
		if _, ok := endpointOn(b, listener); !ok || b.Fenced {
			continue
		}
		if b.ID == img.Controller() {
			return int32(b.ID)
		}
		if found < 0 {
			found = int32(b.ID)
		}
	}
	return found
}

// ids views broker ids as the numbers that kmsg takes. The result is read only,
// like the image that it comes from.
func ids(brokers []cluster.BrokerID) []int32 {
	if len(brokers) == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(&brokers[0])), len(brokers))
}

func brokerIDs(ids []int32) []cluster.BrokerID {
	out := make([]cluster.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = cluster.BrokerID(id)
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }
