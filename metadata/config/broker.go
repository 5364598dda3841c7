package config

import "time"

// Broker is the typed configuration of one node, as it was given at start.
type Broker struct {
	// Static holds every key that was set, canonical; see Layers.Static.
	Static map[string]string

	NodeID int32
	Roles  []string // process.roles
	Rack   string

	LogDirs        []string
	MetadataLogDir string

	Listeners           []Endpoint
	AdvertisedListeners []Endpoint        // never empty once parsed; port 0 stands for the bound one
	SecurityProtocols   map[string]string // listener name to protocol
	InterBrokerListener string
	ControllerListeners []string // controller.listener.names
	AdminListeners      []string // URLs
	Voters              []Voter  // controller.quorum.voters; empty: this node alone

	LogFormat string // text or json
	LogLevel  string // debug, info, warn, error
	ReadyFile string

	AutoCreateTopics             bool
	DeleteTopicEnable            bool
	NumPartitions                int32
	DefaultReplication           int16
	MaxRequestPartitions         int32 // max.request.partition.size.limit
	ControlledShutdown           bool
	HeartbeatInterval            time.Duration
	SessionTimeout               time.Duration
	RegistrationTimeout          time.Duration
	ProducerIDExpiration         time.Duration
	RetentionCheckEvery          time.Duration // log.retention.check.interval.ms
	InitialTaskDelay             time.Duration // log.initial.task.delay.ms
	RecoveryThreads              int32         // a log dir
	RecoveryCheckpointEvery      time.Duration // log.flush.offset.checkpoint.interval.ms
	LogStartCheckpointEvery      time.Duration
	HighWatermarkCheckpointEvery time.Duration
	DiskReservedBytes            int64

	SocketReceiveBytes    int32 // -1: the system's
	SocketSendBytes       int32
	SocketRequestMaxBytes int32
	ConnectionsMaxIdle    time.Duration
	MaxConnections        int32
	MaxConnectionsPerIP   int32
	FetchMaxBytes         int32
	LegacyClients         bool  // compat.legacy.clients
	FetchSessionSlots     int32 // max.incremental.fetch.session.cache.slots
	RequestTimeout        time.Duration
	PartitionSeriesMax    int32 // metrics.partition.series.max

	Store  Store
	Cache  Cache
	Groups Groups

	OffsetsTopic OffsetsTopic

	// Cleaner is what holds as long as no dynamic configuration says otherwise; see
	// EffectiveCleaner.
	Cleaner Cleaner

	// TierByDefault is log.remote.storage.enable with its default resolved:
	// new topics that do not say are tiered.
	TierByDefault      bool
	TierTaskEvery      time.Duration // remote.log.manager.task.interval.ms
	TierCopiers        int32
	TierReaders        int32
	RemoteListTimeout  time.Duration
	TierUploadDeadline time.Duration
	TierManifestEvery  time.Duration
	TierDeleteDelay    time.Duration // grace time
	TierRecoveryWindow time.Duration
}

// Store says where remote segments go.
type Store struct {
	URL             string // resolved; never empty
	Explicit        bool   // remote.store.url was set
	Driver          string // aws or minio
	Endpoint        string
	Region          string
	PathStyle       bool
	AccessKeyID     string
	SecretAccessKey string
	Checksum        string
	StorageClass    string
	PartBytes       int64
	RequestTimeout  time.Duration
}

// Cache says how remote reads are cached.
type Cache struct {
	Dir        string
	LimitBytes int64
	ChunkBytes int64
}

// Endpoint is one listener: NAME://host:port. Host "" is every address.
type Endpoint struct {
	Name string
	Host string
	Port int32
}

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int32
}

// Warning is said once at start.
type Warning struct {
	Key  string
	Text string
}
