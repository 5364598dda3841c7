package group

import (
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/metadata/cluster"
)

// aGroup has members that read topics, or none.
type aGroup struct {
	refuses error
	topics  map[string]bool
	expiry  Expiry
	keeps   bool
}

func (g aGroup) CheckCommit(CommitRequest) error { return g.refuses }
func (g aGroup) CheckFetch(string, int32) error  { return g.refuses }
func (g aGroup) CheckOffsetDelete() error        { return g.refuses }
func (g aGroup) CheckDelete() error              { return g.refuses }
func (g aGroup) Subscribed(topic string) bool    { return g.topics[topic] }
func (g aGroup) Expiry() (Expiry, bool)          { return g.expiry, !g.keeps }

var noon = time.UnixMilli(1_700_000_000_000)

func stored(list ...StoredOffset) iter.Seq2[StoredOffset, error] {
	return func(yield func(StoredOffset, error) bool) {
		for _, o := range list {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func offset(topic string, age time.Duration) StoredOffset {
	return StoredOffset{PartitionName: PartitionName{Topic: topic}, CommittedOffset: CommittedOffset{CommitTime: noon.Add(-age)}}
}

var errRead = errors.New("a read failed")

func failing(yield func(StoredOffset, error) bool) { yield(StoredOffset{}, errRead) }

func TestCommits(t *testing.T) {
	cfg := OffsetConfig{MetadataMax: 3}
	req := CommitRequest{Token: 9, Retention: -1, Partitions: []CommitPartition{
		{Topic: "t", TopicID: cluster.TopicID{1}, Partition: 4, Offset: 5, LeaderEpoch: 6, Metadata: "abc"},
		{Topic: "t", Partition: 5, Metadata: "abcd"},
		{Topic: "t", Partition: 6, Metadata: "a😀"},
		{Topic: "t", Partition: 7, Metadata: "ab😀"},
		{Topic: "t", Partition: 8, Metadata: "\xff\xff\xff"},
	}}
	want := CommittedOffset{Offset: 5, LeaderEpoch: 6, Metadata: "abc", CommitTime: noon, TopicID: cluster.TopicID{1}}
	fx := CommitOffsets(noon, cfg, "g", aGroup{}, req)
	require.Len(t, fx.Records, 3)
	require.Equal(t, OffsetRecord("g", "t", 4, want), fx.Records[0])
	long := ErrOffsetMetadataTooLarge
	require.Equal(t, []Reply{{Token: 9, Commit: &CommitResponse{Partitions: []error{nil, long, nil, long, nil}}}}, fx.Replies)

	// A time to live that the client gives is kept, but not one of a transaction.
	req.Partitions, req.Retention = req.Partitions[:1], time.Minute
	want.ExpireTime = noon.Add(time.Minute)
	require.Equal(t, OffsetRecord("g", "t", 4, want), CommitOffsets(noon, cfg, "g", aGroup{}, req).Records[0])
	req.Transactional, want.ExpireTime = true, time.Time{}
	require.Equal(t, OffsetRecord("g", "t", 4, want), CommitOffsets(noon, cfg, "g", aGroup{}, req).Records[0])

	// Whatever is allowed, a record has 16 bits for the length.
	cfg.MetadataMax, req.Transactional = 1<<20, false
	for _, n := range []int{1<<15 - 1, 1 << 15} {
		req.Partitions[0].Metadata = strings.Repeat("x", n)
		fx := CommitOffsets(noon, cfg, "g", aGroup{}, req)
		if n == 1<<15 {
			require.Equal(t, []error{long}, fx.Replies[0].Commit.Partitions)
			continue
		}
		back, err := ParseOffset(fx.Records[0].Value)
		require.NoError(t, err)
		require.Len(t, back.Metadata, n)
	}

	require.Equal(t, Effects{Replies: []Reply{{Token: 9, Err: ErrStaleMemberEpoch}}}, CommitOffsets(noon, cfg, "g", aGroup{refuses: ErrStaleMemberEpoch}, req))
}

func TestDeletes(t *testing.T) {
	g := aGroup{topics: map[string]bool{"read": true}}
	req := OffsetDeleteRequest{Token: 2, Partitions: []PartitionName{{"read", 0}, {"t", 0}, {"t", 1}}}
	fx, err := DeleteOffsets("g", g, req, func(p PartitionName) (bool, error) { return p.Partition == 1, nil })
	require.NoError(t, err)
	require.Equal(t, Effects{
		Records: []Record{OffsetTombstone("g", "t", 1)},
		Replies: []Reply{{Token: 2, Delete: &OffsetDeleteResponse{Partitions: []error{ErrSubscribedToTopic, nil, nil}}}},
	}, fx)
	_, err = DeleteOffsets("g", g, req, func(PartitionName) (bool, error) { return false, errRead })
	require.ErrorIs(t, err, errRead)
	fx, err = DeleteOffsets("g", aGroup{refuses: ErrNonEmptyGroup}, req, nil)
	require.NoError(t, err)
	require.Equal(t, Effects{Replies: []Reply{{Token: 2, Err: ErrNonEmptyGroup}}}, fx)
}

func TestExpiry(t *testing.T) {
	cfg := OffsetConfig{Retention: time.Hour}
	pending := offset("pending", 3*time.Hour)
	pending.Pending = true
	explicit := offset("explicit", 0)
	explicit.ExpireTime = noon
	later := offset("later", 3*time.Hour)
	later.ExpireTime = noon.Add(time.Millisecond)
	for _, c := range []struct {
		name    string
		group   aGroup
		offsets []StoredOffset
		gone    []string
		none    bool
	}{
		{"nothing there", aGroup{}, nil, nil, true},
		{"nothing there, and nothing may go", aGroup{keeps: true}, nil, nil, true},
		{"from the commit on", aGroup{}, []StoredOffset{offset("a", time.Hour), offset("b", time.Hour-1)}, []string{"a"}, false},
		{"all", aGroup{}, []StoredOffset{offset("a", time.Hour), offset("b", 2*time.Hour)}, []string{"a", "b"}, true},
		{"from when it was empty", aGroup{expiry: Expiry{Since: noon.Add(-time.Hour + 1)}}, []StoredOffset{offset("a", 3*time.Hour)}, nil, false},
		{"from when it was empty, over", aGroup{expiry: Expiry{Since: noon.Add(-time.Hour)}}, []StoredOffset{offset("a", 0)}, []string{"a"}, true},
		{"members are there", aGroup{keeps: true}, []StoredOffset{offset("a", 3*time.Hour)}, nil, false},
		{"somebody reads it", aGroup{topics: map[string]bool{"a": true}}, []StoredOffset{offset("a", 3*time.Hour), offset("b", 3*time.Hour)}, []string{"b"}, false},
		{"a transaction", aGroup{}, []StoredOffset{pending}, nil, false},
		{"its own time", aGroup{}, []StoredOffset{explicit, later}, []string{"explicit"}, false},
	} {
		records, none, err := ExpireOffsets(noon, cfg, "g", c.group, stored(c.offsets...))
		require.NoError(t, err, c.name)
		var gone []string
		for _, r := range records {
			require.Nil(t, r.Value)
			k, err := ParseRecordKey(r.Key)
			require.NoError(t, err)
			gone = append(gone, k.Topic)
		}
		require.Equal(t, c.gone, gone, c.name)
		require.Equal(t, c.none, none, c.name)
	}
	_, _, err := ExpireOffsets(noon, cfg, "g", aGroup{}, failing)
	require.ErrorIs(t, err, errRead)
}

func TestOffsetsOfADeletedTopic(t *testing.T) {
	old, gone := cluster.TopicID{1}, cluster.TopicID{2}
	unsaid, before, of, other := offset("t", 0), offset("t", 0), offset("t", 0), offset("u", 0)
	unsaid.Partition, before.Partition, of.Partition = 1, 2, 3
	before.TopicID, of.TopicID = old, gone
	records, err := DropOffsets("g", stored(unsaid, before, of, other), func(o StoredOffset) bool { return o.Topic == "t" && o.Of(gone) })
	require.NoError(t, err)
	require.Equal(t, []Record{OffsetTombstone("g", "t", 1), OffsetTombstone("g", "t", 3)}, records)
	_, err = DropOffsets("g", failing, func(StoredOffset) bool { return true })
	require.ErrorIs(t, err, errRead)
	require.True(t, before.Of(cluster.TopicID{}), "who asks without an id")
}

func TestMemberIDs(t *testing.T) {
	require.Equal(t, "consumer-1-u", NewMemberID("consumer-1", "", "u"))
	require.Equal(t, "A-u", NewMemberID("consumer-1", "A", "u"))
}

func TestEffectsAppend(t *testing.T) {
	fx := Effects{Records: []Record{MetadataTombstone("a")}, Replies: []Reply{{Token: 1}}}
	fx.Append(Effects{Records: []Record{MetadataTombstone("b")}, Replies: []Reply{{Token: 2}}})
	require.Equal(t, Effects{Records: []Record{MetadataTombstone("a"), MetadataTombstone("b")}, Replies: []Reply{{Token: 1}, {Token: 2}}}, fx)
}
