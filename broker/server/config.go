package server

import (
	"context"
	"log/slog"
	"time"

	"strandline/broker/api"
	"strandline/broker/wire"
)

// Handler answers requests. api.Handler is the one of the product.
type Handler interface {
	// Serve answers q by one frame in out, by a Deferred, or by neither where
	// the request expects no answer. q and what it points to are valid until
	// Serve returns. An error closes the connection.
	Serve(ctx context.Context, c *api.Conn, q *wire.Request, out *wire.Out) (api.Deferred, error)
}

// Config configures a Server. Zero values take the defaults of Default.
type Config struct {
	Handler Handler
	Logger  *slog.Logger
	Metrics *Metrics

	// Dirs are the directories of the files that responses are sent from; each
	// has its own bound on reads that wait for the disk.
	Dirs []string

	// MaxConnections bounds the connections of all listeners together
	// (max.connections), MaxConnectionsPerIP those of one address.
	MaxConnections      int
	MaxConnectionsPerIP int
	// IdleMax is connections.max.idle.ms.
	IdleMax time.Duration
	// MaxRequestBytes is socket.request.max.bytes.
	MaxRequestBytes int
	// MaxInFlight and MaxInFlightBytes bound the requests of one connection
	// that wait to be answered.
	MaxInFlight      int
	MaxInFlightBytes int
	// SendBufferBytes and ReceiveBufferBytes are socket.*.buffer.bytes; -1 and
	// 0 leave them to the system, which adapts them.
	SendBufferBytes    int
	ReceiveBufferBytes int
}

// Default returns the default limits.
func Default() Config {
	return Config{
		MaxConnections:      1<<31 - 1,
		MaxConnectionsPerIP: 1<<31 - 1,
		IdleMax:             10 * time.Minute,
		MaxRequestBytes:     100 << 20,
		MaxInFlight:         256,
		MaxInFlightBytes:    128 << 20,
	}
}

func (c Config) withDefaults() Config {
	d := Default()
	pick := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	pick(&c.MaxConnections, d.MaxConnections)
	pick(&c.MaxConnectionsPerIP, d.MaxConnectionsPerIP)
	pick(&c.MaxRequestBytes, d.MaxRequestBytes)
	pick(&c.MaxInFlight, d.MaxInFlight)
	pick(&c.MaxInFlightBytes, d.MaxInFlightBytes)
	if c.IdleMax <= 0 {
		c.IdleMax = d.IdleMax
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	return c
}
