package compat

import (
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

func TestKafkaCluster(t *testing.T) {
	s := kit.Start(t, nil)
	run := func(args ...string) (string, int) {
		out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.ClusterTool", append(args, "--bootstrap-server", s.Addr)...)
		return out + errOut, code
	}
	out, code := run("cluster-id")
	require.Zero(t, code, out)
	require.Regexp(t, `Cluster ID: \S{22}`, out)
	out, code = run("list-endpoints")
	require.Zero(t, code, out)
	require.Regexp(t, `1\s+127\.0\.0\.1\s+\d+\s+null\s+unfenced\s+broker`, out)
	out, _ = run("unregister", "--id", "7")
	require.Contains(t, out, "Broker ID 7 is not currently registered")
	out, _ = run("unregister", "--id", "1")
	require.Contains(t, out, "Broker 1 is running.")
}

func TestKafkaFeaturesAndQuorum(t *testing.T) {
	s := kit.Start(t, nil)
	require.Regexp(t, `Feature: strandline\.version\s+SupportedMinVersion: 1\s+SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1`,
		tool(t, s, "", "FeatureCommand", "describe"))
	out, errOut, code := kit.KafkaTool(t, "", "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", s.Addr, "downgrade", "--feature", "strandline.version=0")
	require.NotZero(t, code)
	require.Contains(t, out+errOut, "Local controller 1 only supports versions 1-1")
	status := tool(t, s, "", "MetadataQuorumCommand", "describe", "--status")
	require.Regexp(t, `LeaderId:\s+1\n`, status)
	require.Regexp(t, `CurrentVoters:\s+\[\{"id": 1, "directoryId": "\S{22}", "endpoints": \["PLAINTEXT://127\.0\.0\.1:\d+"\]\}\]`, status)
	require.Regexp(t, `1\s+\S{22}\s+\d+\s+0\s+\d+\s+\d+\s+Leader`, tool(t, s, "", "MetadataQuorumCommand", "describe", "--replication"))
}

func TestKafkaConfigsOfBrokers(t *testing.T) {
	s := kit.Start(t, nil)
	configs := func(args ...string) string {
		return tool(t, s, "", "ConfigCommand", append(args, "--entity-type", "brokers")...)
	}
	require.Contains(t, configs("--alter", "--entity-name", "1", "--add-config", "log.retention.ms=7200000"), "Completed updating config for broker 1.")
	require.Contains(t, configs("--alter", "--entity-default", "--add-config", "log.roll.ms=3600000"), "Completed updating default config for brokers")
	all := configs("--describe")
	require.Contains(t, all, "log.retention.ms=7200000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=7200000")
	require.Contains(t, all, "log.roll.ms=3600000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.roll.ms=3600000}")
	configs("--alter", "--entity-name", "1", "--delete-config", "log.retention.ms")
	require.NotContains(t, configs("--describe", "--entity-name", "1"), "log.retention.ms=7200000")
}
