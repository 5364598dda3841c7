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
//	A2  A response repeats the topics and partitions of its request in its
//	    order; no field of it is a placeholder where the error is 0.
//	A3  The bytes of a fetch response's records are at most the larger of
//	    max_bytes and the first batch returned.
package api
