// Package api answers Kafka requests: one file per API key, named after it. It
// decodes a request, asks its collaborators, and encodes the response.
//
// Owns: the meaning of each request, the mapping of errors to Kafka codes (only
// in codes.go), the ports that it needs of the replicas hosted here (Replicas,
// Partition), of the cluster (Cluster) and of the configuration (Configs).
//
// May not touch: sockets, files, the log's format beyond the header of a
// produced batch, the controller's rules.
//
// Goroutines: those of one fetch that reads several remote partitions at once;
// Deferred.Complete waits for them. Those of automatic topic creation, bounded
// by AutoCreateMax; Handler.Close waits for them.
//
// Errors: Serve returns an error only where the connection must be closed, as
// Apache Kafka does: a request that cannot be decoded, or one that failed and
// expects no answer. Everything else is a code in the response.
//
// Invariants:
//
//	A1  Every region that a partition gave out is placed in an Out, or
//	    released, on every path.
//	A2  A response answers what its request names, in the request's order; no
//	    field of it is a placeholder where the error is 0, other than the value
//	    by which the protocol says that there is none (-1, null, an id of
//	    zeros). What is named twice is answered as Apache Kafka answers it:
//	    once (Metadata), or refused once where it stands first (a partition of
//	    ListOffsets, a topic that is to be made, grown or deleted); elsewhere it
//	    is answered twice (docs/divergence.md). Three have an order of their
//	    own: a fetch in a session, with what is new in the session's turn;
//	    pages of DescribeTopicPartitions, by name and up to their limit;
//	    DescribeLogDirs and AlterReplicaLogDirs, by directory and by topic.
//	A3  The bytes of a fetch response's records are at most the larger of
//	    max_bytes and the first batch returned.
package api
