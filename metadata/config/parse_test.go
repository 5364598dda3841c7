package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseDefaults(t *testing.T) {
	b, ws, err := ParseBroker(nil)
	require.NoError(t, err)
	require.Empty(t, ws)
	require.Empty(t, b.Static)
	require.Equal(t, int32(1), b.NodeID)
	require.Equal(t, []string{"./data/logs"}, b.LogDirs)
	require.Equal(t, "./data/metadata", b.MetadataLogDir)
	require.Equal(t, []Endpoint{{"PLAINTEXT", "localhost", 9092}}, b.Listeners)
	require.Equal(t, b.Listeners, b.AdvertisedListeners)
	require.Equal(t, "PLAINTEXT", b.InterBrokerListener)
	require.Equal(t, []string{"http://localhost:9644"}, b.AdminListeners)
	require.False(t, b.TierByDefault)
	require.False(t, b.Store.Explicit)
	require.True(t, strings.HasPrefix(b.Store.URL, "file:///"))
	require.True(t, strings.HasSuffix(b.Store.URL, "/data/tier"))
	require.Equal(t, 10*time.Minute, b.TierUploadDeadline)
}

func TestParse(t *testing.T) {
	b, ws, err := ParseBroker(m(
		"broker.id", "7", "log.dir", "/a, /b", "listeners", "plaintext://0.0.0.0:0,INT://:9093",
		"advertised.listeners", "PLAINTEXT://example:0, INT://other:9093",
		"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INT:PLAINTEXT", "inter.broker.listener.name", "int",
		"remote.store.url", "s3://bucket/prefix", "remote.store.access.key.id", "k", "remote.store.secret.access.key", "s",
		"admin.listeners", "", "log.retention.check.interval.ms", "100", "ssl.client.auth", "none",
		"group.coordinator.threads", "3", "rsm.config.x", "y", "connections.max.idle.ms", "-1",
		"controller.quorum.voters", "7@h:1,8@i:2",
	))
	require.NoError(t, err)
	require.Equal(t, int32(7), b.NodeID)
	require.Equal(t, []string{"/a", "/b"}, b.LogDirs)
	require.Equal(t, []Endpoint{{"PLAINTEXT", "0.0.0.0", 0}, {"INT", "", 9093}}, b.Listeners)
	require.Equal(t, []Endpoint{{"PLAINTEXT", "example", 0}, {"INT", "other", 9093}}, b.AdvertisedListeners)
	require.Equal(t, "INT", b.InterBrokerListener)
	require.True(t, b.TierByDefault)
	require.Equal(t, "s3://bucket/prefix", b.Store.URL)
	require.Empty(t, b.AdminListeners)
	require.Equal(t, 100*time.Millisecond, b.RetentionCheckEvery)
	require.Equal(t, Forever, b.ConnectionsMaxIdle)
	require.Equal(t, []Voter{{7, "h", 1}, {8, "i", 2}}, b.Voters)
	require.Len(t, ws, 3)
	require.Equal(t, "group.coordinator.threads", ws[0].Key)
	require.Equal(t, "inter.broker.listener.name", ws[1].Key)
	require.Equal(t, "rsm.config.x", ws[2].Key)

	b, _, err = ParseBroker(m("log.remote.storage.enable", "false", "remote.store.url", "mem:"))
	require.NoError(t, err)
	require.False(t, b.TierByDefault)
	b, _, err = ParseBroker(m("log.remote.storage.enable", "true"))
	require.NoError(t, err)
	require.True(t, b.TierByDefault)
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		props map[string]string
		key   string
		says  string
	}{
		{m("log.retension.ms", "5"), "log.retension.ms", "did you mean log.retention.ms?"},
		{m("retention.ms", "5"), "retention.ms", "the broker's default for it is log.retention.ms"},
		{m("zookeeper.connect", "x"), "zookeeper.connect", "there is no ZooKeeper"},
		{m("qqqqqqqqqqqqqqqqqqqqq", "5"), "qqqqqqqqqqqqqqqqqqqqq", "is not a known key"},
		{m("ssl.keystore.location", "x"), "ssl.keystore.location", "TLS is not implemented yet"},
		{m("authorizer.class.name", "x"), "authorizer.class.name", "authorization is not implemented"},
		{m("listener.name.x.ssl.key.password", "x"), "listener.name.x.ssl.key.password", "security"},
		{m("num.partitions", "0"), "num.partitions", "Value must be at least 1"},
		{m("listeners", "PLAINTEXT://0.0.0.0:9092"), "advertised.listeners", "add the line advertised.listeners=PLAINTEXT://HOST:9092"},
		{m("listeners", "PLAINTEXT://:9092"), "advertised.listeners", "add the line advertised.listeners="},
		{m("advertised.listeners", "PLAINTEXT://0.0.0.0:9092"), "advertised.listeners", "no address to connect to"},
		{m("advertised.listeners", "OTHER://h:9092"), "advertised.listeners", "no listener OTHER"},
		{m("listeners", "SSL://h:9092"), "listeners", "not implemented yet"},
		{m("listeners", "FOO://h:9092"), "listener.security.protocol.map", "FOO"},
		{m("listeners", "h:9092"), "listeners", "NAME://host:port"},
		{m("listeners", "PLAINTEXT://h:99999"), "listeners", "65535"},
		{m("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2"), "listeners", "used twice"},
		{m("listeners", ""), "listeners", "must not be empty"},
		{m("node.id", "1", "broker.id", "2"), "broker.id", "must be equal"},
		{m("log.dirs", "./data/metadata"), "log.dirs", "named twice"},
		{m("remote.store.url", "file://data/tier"), "remote.store.url", "absolute path"},
		{m("remote.store.url", "gs://x"), "remote.store.url", "want file:///DIR"},
		{m("log.dirs", "/d/a,/d/a/b"), "log.dirs", "/d/a/b lies in /d/a"},
		{m("log.dirs", "/d/a/../b/c,/d/b"), "log.dirs", "must lie beside each other"},
		{m("log.dirs", "/d/a", "remote.store.url", "file:///d/a"), "remote.store.url", "lies in the log directory /d/a"},
		{m("log.dirs", "/d/b,/d/a", "remote.store.url", "file:///d/a/tier/x"), "remote.store.url", "lies in the log directory /d/a"},
		{m("log.dirs", "data"), "remote.store.url", "data/tier lies in the log directory data"},
		{m("remote.store.driver", "gcs"), "remote.store.driver", "minio"},
		{m("remote.store.url", "s3:///x"), "remote.store.url", "want file:///DIR"},
		{m("remote.store.access.key.id", "k"), "remote.store.access.key.id", "go together"},
		{m("remote.chunk.size.bytes", "16777216", "remote.cache.size.bytes", "16777216"), "remote.chunk.size.bytes", "too large"},
		{m("remote.chunk.size.bytes", "1048577", "remote.cache.size.bytes", "4194304"), "remote.chunk.size.bytes", "at least 4 chunks"},
		{m("remote.cache.size.bytes", "4194303"), "remote.cache.size.bytes", "4194304"},
		{m("controller.quorum.voters", "2@h:1"), "controller.quorum.voters", "not in controller.quorum.voters"},
		{m("controller.quorum.voters", "1@h"), "controller.quorum.voters", "id@host:port"},
		{m("process.roles", "broker"), "controller.quorum.voters", "must name the nodes"},
		{m("broker.heartbeat.interval.ms", "9000"), "broker.heartbeat.interval.ms", "less than"},
		{m("log.retention.bytes", "10", "log.local.retention.bytes", "20", "remote.store.url", "mem:"), "log.local.retention.bytes", "must not be more than"},
		{m("log.retention.hours", "0"), "log.retention.hours", "at least 1"},
		{m("admin.listeners", "localhost:1"), "admin.listeners", "http://host:port"},
		{m("remote.log.manager.copy.max.bytes.per.second", "5"), "remote.log.manager.copy.max.bytes.per.second", "quotas"},
	} {
		_, _, err := ParseBroker(c.props)
		require.ErrorIs(t, err, ErrInvalid, "%v", c.props)
		require.ErrorContains(t, err, c.says)
		var ke *KeyError
		require.True(t, errors.As(err, &ke))
		require.Equal(t, c.key, ke.Key, "%v", c.props)
	}
	_, _, err := ParseBroker(m("log.dirs", "/d/a,/d/ab,/d/..a", "remote.store.url", "file:///d"))
	require.NoError(t, err, "beside each other")
	_, _, err = ParseBroker(m("a", "1", "b", "2"))
	require.Len(t, strings.Split(err.Error(), "\n"), 2, "every wrong key is named")
}
