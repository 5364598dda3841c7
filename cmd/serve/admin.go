package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"strandline/broker/admin"
)

func (n *Node) listenAdmin() error {
	n.admin = admin.New(admin.Config{
		Ready: n.readiness, Metrics: n.registry, Logger: n.cfg.Logger,
		Handlers: map[string]http.Handler{
			"/tier/status":   n.onceReady(n.serveTierStatus),
			"/tier/segments": n.onceReady(n.serveTierSegments),
			"/topics/status": n.onceReady(n.serveTopicStatus),
		},
	})
	n.onClose("admin listener", n.admin.Close)
	for _, address := range n.cfg.Broker.AdminListeners {
		bound, err := n.admin.Listen(address)
		switch {
		case errors.Is(err, admin.ErrAddress):
			return &ExitError{Code: ExitConfig, Err: fmt.Errorf("admin.listeners: %w", err)}
		case err != nil:
			return &ExitError{Code: ExitListen, Err: fmt.Errorf("admin.listeners: %w", err)}
		}
		if n.line.Admin == "" {
			n.line.Admin = bound
		}
	}
	n.admin.Serve()
	return nil
}

// onceReady answers 503 until every part is there.
func (n *Node) onceReady(f http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !n.ready.Load() {
			http.Error(w, "the broker is not ready", http.StatusServiceUnavailable)
			return
		}
		f(w, r)
	})
}

func (n *Node) readiness() admin.Readiness {
	if !n.ready.Load() {
		return admin.Readiness{Reasons: []string{"the broker is starting or stopping"}, Tier: "starting"}
	}
	r := admin.Readiness{Ready: true, Reasons: []string{}, Tier: n.tierWord()}
	for _, ready := range []func() (bool, []string){n.lifecycle.Ready, n.replicas.Ready, n.coordinatorsReady} {
		ok, reasons := ready()
		r.Ready = r.Ready && ok
		r.Reasons = append(r.Reasons, reasons...)
	}
	return r
}

// becomeReady waits until every replica that this broker leads can be written
// and read and their coordinators are loaded, and says so once. One whose log does
// not open may never be: clients are served without it, and the others do not wait.
// Clients are served while coordinators load, too: they answer that they do.
func (n *Node) becomeReady(ctx context.Context, began time.Time) error {
	var served time.Time
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		servable, unopened := n.replicas.Servable()
		if servable && !n.ready.Load() {
			if err := n.server.Serve(); err != nil {
				return err
			}
			n.ready.Store(true)
			served = time.Now()
			if len(unopened) > 0 {
				n.cfg.Logger.Error("clients are served, but partitions cannot be opened: the broker is ready once they are gone or can be read",
					"partitions", strings.Join(unopened, "; "), "remedy", "bring their folders back from a copy and restart, or delete the topics")
			}
		}
		if servable && !n.coordinates.Load() {
			n.coordinates.Store(n.awaitCoordinators(time.Since(served)))
		}
		if servable && len(unopened) == 0 && n.coordinates.Load() {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	b := n.cfg.Broker
	n.line.Data = strings.Join(b.LogDirs, ", ")
	n.line.Tier = b.Store.URL
	n.line.StartMS = time.Since(began).Milliseconds()
	n.cfg.Logger.Info("broker ready", "node.id", n.line.NodeID, "cluster.id", n.line.ClusterID, "listeners", strings.Join(n.line.Listeners, ","),
		"admin", n.line.Admin, "data", strings.Join(b.LogDirs, ","), "tier", n.line.Tier, "start_ms", n.line.StartMS)
	return nil
}
