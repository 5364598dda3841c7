package config

import "strings"

// ignoredGroups are the keys of Kafka that have no effect here, by reason. A
// line is: name, type, default ("-" for none, "" for empty).
var ignoredGroups = []struct{ reason, keys string }{
	{"the coordinator of a partition of groups has one goroutine and writes as soon as the last write is under way", `
group.consumer.assignor.offload.enable BOOLEAN true
group.coordinator.append.linger.ms INT -1
group.coordinator.background.threads INT 2
group.coordinator.cached.buffer.max.bytes INT 1048588
group.coordinator.threads INT 4
offsets.load.buffer.size INT 5242880
`},
	{"share groups are not implemented yet", `
errors.deadletterqueue.auto.create.topics.enable BOOLEAN false
errors.deadletterqueue.topic.name.prefix STRING dlq.
group.share.assignment.interval.ms INT 1000
group.share.assignor.offload.enable BOOLEAN true
group.share.assignors LIST simple
group.share.delivery.count.limit INT 5
group.share.dlq.manager.class.name STRING org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager
group.share.heartbeat.interval.ms INT 5000
group.share.initialize.retry.interval.ms INT 30000
group.share.max.assignment.interval.ms INT 15000
group.share.max.delivery.count.limit INT 10
group.share.max.heartbeat.interval.ms INT 15000
group.share.max.partition.max.record.locks INT 4000
group.share.max.record.lock.duration.ms INT 60000
group.share.max.session.timeout.ms INT 60000
group.share.max.share.sessions INT 2000
group.share.max.size INT 200
group.share.min.assignment.interval.ms INT 0
group.share.min.delivery.count.limit INT 2
group.share.min.heartbeat.interval.ms INT 5000
group.share.min.partition.max.record.locks INT 100
group.share.min.record.lock.duration.ms INT 15000
group.share.min.session.timeout.ms INT 45000
group.share.partition.max.record.locks INT 2000
group.share.persister.class.name STRING org.apache.kafka.server.share.persister.DefaultStatePersister
group.share.record.lock.duration.ms INT 30000
group.share.session.timeout.ms INT 45000
share.coordinator.append.linger.ms INT -1
share.coordinator.cached.buffer.max.bytes INT 1048588
share.coordinator.cold.partition.snapshot.interval.ms INT 300000
share.coordinator.load.buffer.size INT 5242880
share.coordinator.snapshot.update.records.per.snapshot INT 500
share.coordinator.state.topic.compression.codec INT 0
share.coordinator.state.topic.min.isr SHORT 2
share.coordinator.state.topic.num.partitions INT 50
share.coordinator.state.topic.prune.interval.ms INT 300000
share.coordinator.state.topic.replication.factor SHORT 3
share.coordinator.state.topic.segment.bytes INT 104857600
share.coordinator.threads INT 1
share.coordinator.write.timeout.ms INT 5000
share.fetch.purgatory.purge.interval.requests INT 1000
`},
	{"streams groups are not implemented yet", `
group.streams.acceptable.recovery.lag LONG 10000
group.streams.assignment.interval.ms INT 1000
group.streams.assignor.offload.enable BOOLEAN true
group.streams.assignors LIST sticky
group.streams.heartbeat.interval.ms INT 5000
group.streams.initial.rebalance.delay.ms INT 3000
group.streams.max.assignment.interval.ms INT 15000
group.streams.max.heartbeat.interval.ms INT 15000
group.streams.max.session.timeout.ms INT 60000
group.streams.max.size INT 2147483647
group.streams.max.standby.replicas INT 2
group.streams.max.warmup.replicas INT 20
group.streams.min.assignment.interval.ms INT 0
group.streams.min.heartbeat.interval.ms INT 5000
group.streams.min.session.timeout.ms INT 45000
group.streams.min.task.offset.interval.ms INT 15000
group.streams.num.standby.replicas INT 0
group.streams.num.warmup.replicas INT 2
group.streams.rack.aware.assignment.tags LIST ""
group.streams.session.timeout.ms INT 45000
group.streams.task.offset.interval.ms INT 60000
group.streams.topology.description.plugin.class CLASS -
`},
	{"transactions are not implemented yet", `
add.partitions.to.txn.retry.backoff.max.ms INT 100
add.partitions.to.txn.retry.backoff.ms INT 20
transaction.abort.timed.out.transaction.cleanup.interval.ms INT 10000
transaction.max.timeout.ms INT 900000
transaction.partition.verification.enable BOOLEAN true
transaction.remove.expired.transaction.cleanup.interval.ms INT 3600000
transaction.state.log.load.buffer.size INT 5242880
transaction.state.log.min.isr INT 2
transaction.state.log.num.partitions INT 50
transaction.state.log.replication.factor SHORT 3
transaction.state.log.segment.bytes INT 104857600
transaction.two.phase.commit.enable BOOLEAN false
transactional.id.expiration.ms INT 604800000
`},
	{"replication between brokers is not implemented yet", `
auto.leader.rebalance.enable BOOLEAN true
follower.fetch.last.tiered.offset.enable BOOLEAN false
leader.imbalance.check.interval.seconds LONG 300
num.replica.alter.log.dirs.threads INT -
num.replica.fetchers INT 1
replica.fetch.backoff.ms INT 1000
replica.fetch.max.bytes INT 1048576
replica.fetch.min.bytes INT 1
replica.fetch.response.max.bytes INT 10485760
replica.fetch.wait.max.ms INT 500
replica.selector.class STRING -
replica.socket.receive.buffer.bytes INT 65536
replica.socket.timeout.ms INT 30000
unclean.leader.election.interval.ms LONG 300000
`},
	{"the metadata quorum is not Kafka's and has no such setting", `
controller.performance.always.log.threshold.ms LONG 2000
controller.performance.sample.period.ms LONG 60000
controller.quorum.append.linger.ms INT 25
controller.quorum.auto.join.enable BOOLEAN false
controller.quorum.bootstrap.servers LIST ""
controller.quorum.election.backoff.max.ms INT 1000
controller.quorum.election.timeout.ms INT 1000
controller.quorum.fetch.max.bytes INT 1048576
controller.quorum.fetch.snapshot.max.bytes INT 1048576
controller.quorum.fetch.timeout.ms INT 2000
controller.quorum.request.timeout.ms INT 2000
controller.quorum.retry.backoff.ms INT 20
internal.metadata.delete.delay.millis LONG 60000
internal.metadata.log.segment.bytes INT -
internal.metadata.max.batch.size.in.bytes INT 8388608
metadata.log.max.record.bytes.between.snapshots LONG 20971520
metadata.log.max.snapshot.interval.ms LONG 3600000
metadata.log.segment.bytes INT 1073741824
metadata.log.segment.ms LONG 604800000
metadata.max.idle.interval.ms INT 500
metadata.max.retention.bytes LONG 104857600
metadata.max.retention.ms LONG 604800000
`},
	{"the tier is built in and has keys of its own, see remote.store.url", `
remote.log.index.file.cache.total.size.bytes LONG 1073741824
remote.log.index.file.cache.ttl.ms LONG 900000
remote.log.manager.copy.quota.window.num INT 11
remote.log.manager.copy.quota.window.size.seconds INT 1
remote.log.manager.fetch.quota.window.num INT 11
remote.log.manager.fetch.quota.window.size.seconds INT 1
remote.log.manager.follower.thread.pool.size INT 2
remote.log.manager.task.retry.backoff.max.ms LONG 30000
remote.log.manager.task.retry.backoff.ms LONG 500
remote.log.manager.task.retry.jitter DOUBLE 0.2
remote.log.manager.thread.pool.size INT 2
remote.log.metadata.custom.metadata.max.bytes INT 128
remote.log.metadata.manager.class.name STRING org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING -
remote.log.metadata.manager.impl.prefix STRING rlmm.config.
remote.log.metadata.manager.listener.name STRING -
remote.log.storage.manager.class.name STRING -
remote.log.storage.manager.class.path STRING -
remote.log.storage.manager.impl.prefix STRING rsm.config.
remote.log.storage.system.enable BOOLEAN false
`},
	{"metrics are served at /metrics of admin.listeners", `
kafka.metrics.polling.interval.secs INT 10
kafka.metrics.reporters LIST ""
metric.reporters LIST org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples INT 2
metrics.recording.level STRING INFO
metrics.sample.window.ms LONG 30000
telemetry.max.bytes INT 1048576
`},
	{"it sets the window of quotas, which are not implemented yet", `
alter.log.dirs.replication.quota.window.num INT 11
alter.log.dirs.replication.quota.window.size.seconds INT 1
controller.quota.window.num INT 11
controller.quota.window.size.seconds INT 1
quota.window.num INT 11
quota.window.size.seconds INT 1
replication.quota.window.num INT 11
replication.quota.window.size.seconds INT 1
`},
	{"there are no thread pools or purgatories of a fixed size", `
background.threads INT 10
delete.records.purgatory.purge.interval.requests INT 1
fetch.purgatory.purge.interval.requests INT 1000
num.io.threads INT 8
num.network.threads INT 3
producer.purgatory.purge.interval.requests INT 1000
`},
	{"values are read as they are written; use the environment for secrets", `config.providers LIST ""`},
	{"the metadata quorum is not Kafka's and has no such setting", `controller.socket.timeout.ms INT 30000`},
	{"listeners open once the broker is ready", `early.start.listeners LIST -`},
	{"a failed directory goes offline without shutting the broker down", `log.dir.failure.timeout.ms LONG 30000`},
	{"start-up has no time limit", `server.max.startup.time.ms LONG 9223372036854775807`},
	{"replication between brokers is not implemented yet", `socket.connection.setup.timeout.max.ms LONG 30000`},
	{"replication between brokers is not implemented yet", `socket.connection.setup.timeout.ms LONG 10000`},
	{"the backlog is the operating system's (net.core.somaxconn)", `socket.listen.backlog.size INT 50`},
	{"there are no unstable versions", `unstable.api.versions.enable BOOLEAN false`},
	{"there are no unstable versions", `unstable.feature.versions.enable BOOLEAN false`},
}

// unsafeGroups are the keys of Kafka that would weaken safety if they were
// ignored, by reason.
var unsafeGroups = []struct{ reason, keys string }{
	{"TLS is not implemented yet", `
ssl.allow.dn.changes BOOLEAN false
ssl.allow.san.changes BOOLEAN false
ssl.cipher.suites LIST ""
ssl.client.auth STRING none
ssl.enabled.protocols LIST TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm STRING https
ssl.engine.factory.class CLASS -
ssl.key.password PASSWORD -
ssl.keymanager.algorithm STRING SunX509
ssl.keystore.certificate.chain PASSWORD -
ssl.keystore.key PASSWORD -
ssl.keystore.location STRING -
ssl.keystore.password PASSWORD -
ssl.keystore.type STRING JKS
ssl.principal.mapping.rules STRING DEFAULT
ssl.protocol STRING TLSv1.3
ssl.provider STRING -
ssl.secure.random.implementation STRING -
ssl.trustmanager.algorithm STRING PKIX
ssl.truststore.certificates PASSWORD -
ssl.truststore.location STRING -
ssl.truststore.password PASSWORD -
ssl.truststore.type STRING JKS
`},
	{"authentication is not implemented yet", `
connection.failed.authentication.delay.ms INT 100
connections.max.reauth.ms LONG 0
delegation.token.expiry.check.interval.ms LONG 3600000
delegation.token.expiry.time.ms LONG 86400000
delegation.token.max.lifetime.ms LONG 604800000
delegation.token.secret.key PASSWORD -
principal.builder.class CLASS org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
sasl.client.callback.handler.class CLASS -
sasl.enabled.mechanisms LIST GSSAPI
sasl.jaas.config PASSWORD -
sasl.kerberos.kinit.cmd STRING /usr/bin/kinit
sasl.kerberos.min.time.before.relogin LONG 60000
sasl.kerberos.principal.to.local.rules LIST DEFAULT
sasl.kerberos.service.name STRING -
sasl.kerberos.ticket.renew.jitter DOUBLE 0.05
sasl.kerberos.ticket.renew.window.factor DOUBLE 0.8
sasl.login.callback.handler.class CLASS -
sasl.login.class CLASS -
sasl.login.connect.timeout.ms INT -
sasl.login.read.timeout.ms INT -
sasl.login.refresh.buffer.seconds SHORT 300
sasl.login.refresh.min.period.seconds SHORT 60
sasl.login.refresh.window.factor DOUBLE 0.8
sasl.login.refresh.window.jitter DOUBLE 0.05
sasl.login.retry.backoff.max.ms LONG 10000
sasl.login.retry.backoff.ms LONG 100
sasl.mechanism.controller.protocol STRING GSSAPI
sasl.mechanism.inter.broker.protocol STRING GSSAPI
sasl.oauthbearer.allow.unverified.audience BOOLEAN false
sasl.oauthbearer.allow.unverified.issuer BOOLEAN false
sasl.oauthbearer.assertion.algorithm STRING RS256
sasl.oauthbearer.assertion.claim.aud STRING -
sasl.oauthbearer.assertion.claim.exp.seconds INT 300
sasl.oauthbearer.assertion.claim.iss STRING -
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN false
sasl.oauthbearer.assertion.claim.nbf.seconds INT 60
sasl.oauthbearer.assertion.claim.sub STRING -
sasl.oauthbearer.assertion.file STRING -
sasl.oauthbearer.assertion.private.key.file STRING -
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD -
sasl.oauthbearer.assertion.template.file STRING -
sasl.oauthbearer.client.credentials.client.id STRING -
sasl.oauthbearer.client.credentials.client.secret PASSWORD -
sasl.oauthbearer.clock.skew.seconds INT 30
sasl.oauthbearer.expected.audience LIST ""
sasl.oauthbearer.expected.issuer STRING -
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG 100
sasl.oauthbearer.jwks.endpoint.url STRING -
sasl.oauthbearer.jwt.retriever.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class CLASS org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope STRING -
sasl.oauthbearer.scope.claim.name STRING scope
sasl.oauthbearer.sub.claim.name STRING sub
sasl.oauthbearer.token.endpoint.url STRING -
sasl.server.callback.handler.class CLASS -
sasl.server.max.receive.size INT 524288
security.inter.broker.protocol STRING PLAINTEXT
security.providers STRING -
`},
	{"authorization is not implemented yet", `
authorizer.class.name STRING ""
super.users LIST ""
allow.everyone.if.no.acl.found BOOLEAN -
`},
	{"policies are Java classes, which cannot run here", `
alter.config.policy.class.name CLASS -
create.topic.policy.class.name CLASS -
`},
	{"quotas are not implemented yet", `
client.quota.callback.class CLASS -
cordoned.log.dirs LIST ""
max.connection.creation.rate INT 2147483647
max.connections.per.ip.overrides STRING ""
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807
`},
}

// removedKeys are keys of older Kafka versions, with what to do about them.
var removedKeys = map[string]string{
	"inter.broker.protocol.version":           "Kafka 4.0 removed it; delete the line",
	"log.message.format.version":              "Kafka 4.0 removed it; delete the line",
	"log.message.downconversion.enable":       "Kafka 4.0 removed it; delete the line",
	"log.message.timestamp.difference.max.ms": "Kafka 4.0 removed it; use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
	"offsets.commit.required.acks":            "Kafka 4.0 removed it; delete the line",
	"reserved.broker.max.id":                  "Kafka 4.0 removed it; delete the line",
	"broker.id.generation.enable":             "Kafka 4.0 removed it; set node.id",
	"zookeeper.connect":                       "there is no ZooKeeper; delete the line",
}

func ignoredKeys() []Key { return readGroups(ignoredGroups, Ignored) }

func unsafeKeys() []Key { return readGroups(unsafeGroups, Unsafe) }

func readGroups(groups []struct{ reason, keys string }, effect Effect) []Key {
	types := map[string]Type{
		"BOOLEAN": Bool, "STRING": String, "INT": Int, "SHORT": Short, "LONG": Long, "DOUBLE": Double,
		"LIST": List, "CLASS": Class, "PASSWORD": Password,
	}
	var keys []Key
	for _, g := range groups {
		for line := range strings.Lines(g.keys) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			k := Key{Name: f[0], Type: types[f[1]], Effect: effect, Reason: g.reason}
			if f[2] != "-" {
				k.Default, k.HasDefault = strings.Trim(f[2], `"`), true
			}
			keys = append(keys, k)
		}
	}
	return keys
}
