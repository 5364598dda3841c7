package group

// Record is one record of __consumer_offsets; a nil Value is a tombstone.
type Record struct{ Key, Value []byte }

// Token names a request that waits for its answer. Whoever hands the request in
// chooses it; no two of a shard are alike.
type Token uint64

// Effects is what an event asks of its caller: append Records, atomically and in
// order, and once they and those of former events are committed send Replies: a
// group moves on before its records are committed, and nobody is to know.
//
// Where the append fails, the caller answers the replies and whatever else waits
// with the reason, drops the group and loads it again from what is committed.
type Effects struct {
	Records []Record
	Replies []Reply
}

// Reply answers the request Token. Err, or the response that belongs to the
// request, is set; neither means done, where there is nothing to tell. An answer
// to a JoinRequest has Join also where Err is set: it carries the member id,
// which ErrMemberIDRequired is about.
type Reply struct {
	Token Token
	Err   error

	Join              *JoinResponse
	Sync              *SyncResponse
	Leave             *LeaveResponse
	Commit            *CommitResponse
	Delete            *OffsetDeleteResponse
	ConsumerHeartbeat *ConsumerHeartbeatResponse
}

// Append adds what more asks for, after what is there.
func (e *Effects) Append(more Effects) {
	e.Records = append(e.Records, more.Records...)
	e.Replies = append(e.Replies, more.Replies...)
}
