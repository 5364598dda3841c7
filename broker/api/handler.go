package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/broker/fetchsession"
	"strandline/broker/wire"
	"strandline/metadata/cluster"
	"strandline/metadata/config"
	"strandline/metadata/image"
	"strandline/metadata/request"
)

// ErrNoAnswer means that a request failed that expects no answer: closing the
// connection is the only way to tell the client.
var ErrNoAnswer = errors.New("request failed and expects no answer")

// Limits that LimitHit is told.
const (
	LimitAutoCreate    = "auto_create_topics"
	LimitFetchSessions = "fetch.sessions"
)

// AutoCreateMax bounds the topics being created because a client asked for them.
const AutoCreateMax = 256

// Config is what a Handler is made of.
type Config struct {
	Cluster  Cluster
	Replicas Replicas
	LogDirs  LogDirs
	// Groups and GroupAdmin serve consumer groups; nil: none are available.
	Groups     Groups
	GroupAdmin GroupAdmin
	// Broker is this node's configuration as it was started.
	Broker config.Broker
	// BrokerEpoch is the present registration's epoch, for requests to the
	// controller that carry it.
	BrokerEpoch func() cluster.BrokerEpoch
	// Conversions counts converted records; nil: nobody counts.
	Conversions *Conversions
	// LimitHit counts a hit of a limit; nil: nobody counts.
	LimitHit func(limit string)
	Logger   *slog.Logger
}

// Handler answers requests. Its methods may be called from several goroutines.
type Handler struct {
	cfg        Config
	ids        producerIDs
	fetches    *fetchsession.Cache
	create     creations
	downgrades *downgrades

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New returns a handler; Close ends what it started.
func New(cfg Config) *Handler {
	if cfg.LogDirs == nil {
		cfg.LogDirs = noLogDirs{}
	}
	if cfg.Groups == nil {
		cfg.Groups = noGroups{}
	}
	if cfg.GroupAdmin == nil {
		cfg.GroupAdmin = noGroups{}
	}
	if cfg.LimitHit == nil {
		cfg.LimitHit = func(string) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.BrokerEpoch == nil {
		cfg.BrokerEpoch = func() cluster.BrokerEpoch { return cluster.NoBrokerEpoch }
	}
	h := &Handler{cfg: cfg, fetches: fetchsession.New(fetchsession.Config{
		Slots: int(cfg.Broker.FetchSessionSlots), LimitHit: func() { cfg.LimitHit(LimitFetchSessions) },
	})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.create.names, h.create.refused = map[string]struct{}{}, map[string]time.Time{}
	h.downgrades = newDowngrades()
	return h
}

// Close ends topic creations that are under way. It may be called more than once.
func (h *Handler) Close() error {
	h.create.mu.Lock() // none starts from here on
	h.cancel()
	h.create.mu.Unlock()
	h.wg.Wait()
	return nil
}

// FetchSessions tells how many fetch sessions there are.
func (h *Handler) FetchSessions() fetchsession.Stats { return h.fetches.Stats() }

// Serve answers a request: by a frame in out, by a Deferred, or by neither where
// none is expected. An error closes the connection.
func (h *Handler) Serve(ctx context.Context, c *Conn, q *wire.Request, out *wire.Out) (Deferred, error) {
	if q.Key == wire.KeyAPIVersions {
		return nil, h.apiVersions(q, out)
	}
	if api, ok := wire.Lookup(q.Key); ok && q.Version < api.Min && !h.cfg.Broker.LegacyClients {
		return nil, fmt.Errorf("%w: key %d version %d, compat.legacy.clients is off", wire.ErrUnsupported, q.Key, q.Version)
	}
	if err := wire.CheckShape(q); err != nil {
		return nil, err
	}
	switch q.Key {
	case wire.KeyProduce:
		return h.produce(q, out)
	case wire.KeyFetch:
		return h.fetch(c, q, out)
	case wire.KeyListOffsets:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrListOffsetsRequest(), h.listOffsets)
	case wire.KeyMetadata:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrMetadataRequest(), func(_ context.Context, req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
			return h.metadata(c, req)
		})
	case wire.KeyOffsetCommit:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrOffsetCommitRequest(), h.offsetCommit)
	case wire.KeyOffsetFetch:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrOffsetFetchRequest(), h.offsetFetch)
	case wire.KeyFindCoordinator:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrFindCoordinatorRequest(), func(_ context.Context, req *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
			return h.findCoordinator(c, req)
		})
	case wire.KeyJoinGroup:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrJoinGroupRequest(), func(ctx context.Context, req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
			return h.joinGroup(ctx, clientOf(c, q), req)
		})
	case wire.KeyHeartbeat:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrHeartbeatRequest(), h.heartbeat)
	case wire.KeyLeaveGroup:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrLeaveGroupRequest(), h.leaveGroup)
	case wire.KeySyncGroup:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrSyncGroupRequest(), h.syncGroup)
	case wire.KeyDescribeGroups:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDescribeGroupsRequest(), h.describeGroups)
	case wire.KeyListGroups:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrListGroupsRequest(), h.listGroups)
	case wire.KeyCreateTopics:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrCreateTopicsRequest(), h.createTopics)
	case wire.KeyDeleteTopics:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDeleteTopicsRequest(), h.deleteTopics)
	case wire.KeyDeleteRecords:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDeleteRecordsRequest(), h.deleteRecords)
	case wire.KeyInitProducerID:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrInitProducerIDRequest(), h.initProducerID)
	case wire.KeyOffsetForLeaderEpoch:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrOffsetForLeaderEpochRequest(), h.offsetForLeaderEpoch)
	case wire.KeyDescribeConfigs:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDescribeConfigsRequest(), h.describeConfigs)
	case wire.KeyAlterConfigs:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrAlterConfigsRequest(), h.alterConfigs)
	case wire.KeyAlterReplicaLogDirs:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrAlterReplicaLogDirsRequest(), h.alterReplicaLogDirs)
	case wire.KeyDescribeLogDirs:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDescribeLogDirsRequest(), h.describeLogDirs)
	case wire.KeyCreatePartitions:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrCreatePartitionsRequest(), h.createPartitions)
	case wire.KeyDeleteGroups:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDeleteGroupsRequest(), h.deleteGroups)
	case wire.KeyIncrementalAlterConfigs:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrIncrementalAlterConfigsRequest(), h.incrementalAlterConfigs)
	case wire.KeyOffsetDelete:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrOffsetDeleteRequest(), h.offsetDelete)
	case wire.KeyDescribeQuorum:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDescribeQuorumRequest(), h.describeQuorum)
	case wire.KeyUpdateFeatures:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrUpdateFeaturesRequest(), h.updateFeatures)
	case wire.KeyDescribeProducers:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDescribeProducersRequest(), h.describeProducers)
	case wire.KeyUnregisterBroker:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrUnregisterBrokerRequest(), h.unregisterBroker)
	case wire.KeyConsumerGroupHeartbeat:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrConsumerGroupHeartbeatRequest(), func(ctx context.Context, req *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
			return h.consumerGroupHeartbeat(ctx, clientOf(c, q), req)
		})
	case wire.KeyConsumerGroupDescribe:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrConsumerGroupDescribeRequest(), h.consumerGroupDescribe)
	case wire.KeyListConfigResources:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrListConfigResourcesRequest(), h.listConfigResources)
	case wire.KeyDescribeCluster:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDescribeClusterRequest(), func(_ context.Context, req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
			return h.describeCluster(c, req)
		})
	case wire.KeyDescribeTopicPartitions:
		return nil, serve(ctx, h, q, out, kmsg.NewPtrDescribeTopicPartitionsRequest(), h.describeTopicPartitions)
	}
	return nil, fmt.Errorf("%w: key %d", wire.ErrUnsupported, q.Key)
}

// serve decodes, calls the handler and encodes, for a request that is answered
// at once.
func serve[Q kmsg.Request, R kmsg.Response](ctx context.Context, h *Handler, q *wire.Request, out *wire.Out, req Q, fn func(context.Context, Q) R) error {
	if err := h.decode(q, req, false); err != nil {
		return err
	}
	respond(out, q, fn(ctx, req))
	return nil
}

// decode reads the body of a request. With views the result's strings are views
// of the frame. A panic of the decoder counts as a malformed request.
func (h *Handler) decode(q *wire.Request, req kmsg.Request, views bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.cfg.Logger.Error("decoder failed", "key", q.Key, "version", q.Version, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: key %d version %d: decoder failed", wire.ErrMalformed, q.Key, q.Version)
		}
	}()
	req.SetVersion(q.Version)
	if u, ok := req.(interface{ UnsafeReadFrom([]byte) error }); ok && views {
		err = u.UnsafeReadFrom(q.Body)
	} else {
		err = req.ReadFrom(q.Body)
	}
	if err != nil {
		return fmt.Errorf("%w: key %d version %d: %w", wire.ErrMalformed, q.Key, q.Version, err)
	}
	return nil
}

// respond encodes a response as one frame.
func respond(out *wire.Out, q *wire.Request, resp kmsg.Response) {
	resp.SetVersion(q.Version)
	out.Begin(q.CorrelationID, resp.IsFlexible() && q.Key != wire.KeyAPIVersions)
	out.Buf = resp.AppendTo(out.Buf)
	out.End()
}

// withTimeout bounds a request by the time that its client gives it, else by
// request.timeout.ms.
func (h *Handler) withTimeout(ctx context.Context, ms int32) (context.Context, context.CancelFunc) {
	return timeoutOr(ctx, ms, h.cfg.Broker.RequestTimeout)
}

func timeoutOr(ctx context.Context, ms int32, otherwise time.Duration) (context.Context, context.CancelFunc) {
	const longest = 10 * time.Minute
	d := time.Duration(ms) * time.Millisecond
	if d <= 0 || d > longest {
		d = otherwise
	}
	if d <= 0 {
		d = 30 * time.Second
	}
	return context.WithTimeout(ctx, d)
}

// submit asks the controller; a result of another type than R is a bug that is
// answered as an unknown server error.
func submit[R any](ctx context.Context, h *Handler, req request.Request) (R, error) {
	var none R
	res, err := h.cfg.Cluster.Submit(ctx, req)
	if err != nil {
		return none, err
	}
	r, ok := res.(R)
	if !ok {
		return none, fmt.Errorf("controller answered %T to %T", res, req)
	}
	return r, nil
}

// outcomes asks the controller for a change of n things and returns their
// outcomes, all the same where the request as a whole failed.
func (h *Handler) outcomes(ctx context.Context, req request.Request, n int) []error {
	res, err := submit[request.Outcomes](ctx, h, req)
	if err == nil && len(res.Errs) != n {
		err = fmt.Errorf("controller answered %d outcomes for %d", len(res.Errs), n)
	}
	if err == nil {
		return res.Errs
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// replica finds the hosted replica of a partition of the image.
func (h *Handler) replica(t *image.Topic, partition int32) (Partition, int16) {
	if partition < 0 || int(partition) >= len(t.Partitions) {
		return nil, codeUnknownTopicOrPartition
	}
	p, err := h.cfg.Replicas.Get(cluster.TopicPartition{Topic: t.ID, Partition: partition})
	if err == nil {
		return p, codeNone
	}
	if code := codeOf(err); code == codeKafkaStorageError {
		return nil, code
	}
	return nil, codeNotLeaderOrFollower
}

// topicFor finds a topic by id where the request has one, else by name.
func topicFor(img *image.Image, byID bool, name string, id [16]byte) (*image.Topic, int16) {
	if byID {
		if t, ok := img.TopicByID(cluster.TopicID(id)); ok {
			return t, codeNone
		}
		return nil, codeUnknownTopicID
	}
	if t, ok := img.Topic(name); ok {
		return t, codeNone
	}
	return nil, codeUnknownTopicOrPartition
}
