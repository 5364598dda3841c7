package api

import (
	"context"
	"errors"
	"strings"

	"strandline/broker/fetchsession"
	"strandline/broker/group"
	"strandline/broker/partition"
	"strandline/broker/recordbatch"
	"strandline/metadata/config"
	"strandline/metadata/request"
)

// Kafka's error codes, those that are answered here.
const (
	codeUnknownServerError         int16 = -1
	codeNone                       int16 = 0
	codeOffsetOutOfRange           int16 = 1
	codeCorruptMessage             int16 = 2
	codeUnknownTopicOrPartition    int16 = 3
	codeLeaderNotAvailable         int16 = 5
	codeNotLeaderOrFollower        int16 = 6
	codeRequestTimedOut            int16 = 7
	codeReplicaNotAvailable        int16 = 9
	codeMessageTooLarge            int16 = 10
	codeOffsetMetadataTooLarge     int16 = 12
	codeCoordinatorLoadInProgress  int16 = 14
	codeCoordinatorNotAvailable    int16 = 15
	codeNotCoordinator             int16 = 16
	codeInvalidTopic               int16 = 17
	codeRecordListTooLarge         int16 = 18
	codeNotEnoughReplicas          int16 = 19
	codeNotEnoughReplicasAppended  int16 = 20
	codeInvalidRequiredAcks        int16 = 21
	codeIllegalGeneration          int16 = 22
	codeInconsistentGroupProtocol  int16 = 23
	codeInvalidGroupID             int16 = 24
	codeUnknownMemberID            int16 = 25
	codeInvalidSessionTimeout      int16 = 26
	codeRebalanceInProgress        int16 = 27
	codeInvalidCommitOffsetSize    int16 = 28
	codeInvalidTimestamp           int16 = 32
	codeUnsupportedVersion         int16 = 35
	codeTopicAlreadyExists         int16 = 36
	codeInvalidPartitions          int16 = 37
	codeInvalidReplicationFactor   int16 = 38
	codeInvalidReplicaAssignment   int16 = 39
	codeInvalidConfig              int16 = 40
	codeNotController              int16 = 41
	codeInvalidRequest             int16 = 42
	codeUnsupportedForMessage      int16 = 43
	codePolicyViolation            int16 = 44
	codeOutOfOrderSequence         int16 = 45
	codeInvalidProducerEpoch       int16 = 47
	codeInvalidTxnState            int16 = 48
	codeKafkaStorageError          int16 = 56
	codeLogDirNotFound             int16 = 57
	codeNonEmptyGroup              int16 = 68
	codeGroupIDNotFound            int16 = 69
	codeFetchSessionIDNotFound     int16 = 70
	codeInvalidFetchSessionEpoch   int16 = 71
	codeListenerNotFound           int16 = 72
	codeTopicDeletionDisabled      int16 = 73
	codeFencedLeaderEpoch          int16 = 74
	codeUnknownLeaderEpoch         int16 = 75
	codeUnsupportedCompressionType int16 = 76
	codeStaleBrokerEpoch           int16 = 77
	codeOffsetNotAvailable         int16 = 78
	codeMemberIDRequired           int16 = 79
	codeGroupMaxSizeReached        int16 = 81
	codeFencedInstanceID           int16 = 82
	codeGroupSubscribedToTopic     int16 = 86
	codeInvalidRecord              int16 = 87
	codeUnstableOffsetCommit       int16 = 88
	codeInvalidUpdateVersion       int16 = 95
	codeUnknownTopicID             int16 = 100
	codeBrokerIDNotRegistered      int16 = 102
	codeInconsistentTopicID        int16 = 103
	codeFetchSessionTopicID        int16 = 106
	codeFencedMemberEpoch          int16 = 110
	codeUnreleasedInstanceID       int16 = 111
	codeUnsupportedAssignor        int16 = 112
	codeStaleMemberEpoch           int16 = 113
	codeMismatchedEndpointType     int16 = 114
	codeUnsupportedEndpointType    int16 = 115
	codeInvalidRegularExpression   int16 = 128
	codeRebootstrapRequired        int16 = 129
)

// codes maps errors to codes; the first that errors.Is finds counts.
var codes = []struct {
	err  error
	code int16
}{
	{partition.ErrNotLeader, codeNotLeaderOrFollower},
	{ErrReplicaNotAvailable, codeReplicaNotAvailable},
	{partition.ErrFencedLeaderEpoch, codeFencedLeaderEpoch},
	{partition.ErrUnknownLeaderEpoch, codeUnknownLeaderEpoch},
	{partition.ErrOffsetOutOfRange, codeOffsetOutOfRange},
	{partition.ErrOffsetNotAvailable, codeOffsetNotAvailable},
	{partition.ErrCorruptBatch, codeCorruptMessage},
	{partition.ErrUnsupportedMagic, codeInvalidRecord},
	{partition.ErrUnsupportedCompression, codeUnsupportedCompressionType},
	{partition.ErrMessageTooLarge, codeMessageTooLarge},
	{partition.ErrRecordListTooLarge, codeRecordListTooLarge},
	{partition.ErrInvalidTimestamp, codeInvalidTimestamp},
	{partition.ErrInvalidRecord, codeInvalidRecord},
	{partition.ErrOutOfOrderSequence, codeOutOfOrderSequence},
	{partition.ErrInvalidProducerEpoch, codeInvalidProducerEpoch},
	{partition.ErrNotEnoughReplicas, codeNotEnoughReplicas},
	{partition.ErrNotEnoughReplicasAfterAppend, codeNotEnoughReplicasAppended},
	{partition.ErrPolicyViolation, codePolicyViolation},
	// Retriable, and the client looks for another replica: what a full or
	// failed disk, a failed store and a closed replica have in common.
	{partition.ErrDiskFull, codeKafkaStorageError},
	{partition.ErrStorage, codeKafkaStorageError},
	{partition.ErrRemote, codeKafkaStorageError},
	{partition.ErrRemoteTimeout, codeRequestTimedOut},
	{partition.ErrClosed, codeNotLeaderOrFollower},

	{request.ErrNotController, codeNotController},
	{request.ErrOutcomeUnknown, codeRequestTimedOut},
	{request.ErrTopicExists, codeTopicAlreadyExists},
	{request.ErrUnknownTopic, codeUnknownTopicOrPartition},
	{request.ErrUnknownTopicID, codeUnknownTopicID},
	{request.ErrInvalidTopicName, codeInvalidTopic},
	{request.ErrInvalidPartitions, codeInvalidPartitions},
	{request.ErrInvalidReplicas, codeInvalidReplicationFactor},
	{request.ErrInvalidAssignment, codeInvalidReplicaAssignment},
	{request.ErrInvalidConfig, codeInvalidConfig},
	{request.ErrPolicyViolation, codePolicyViolation},
	{request.ErrInvalidRequest, codeInvalidRequest},
	{request.ErrFencedLeaderEpoch, codeFencedLeaderEpoch},
	{request.ErrInvalidFeatureUpdate, codeInvalidUpdateVersion},
	{request.ErrUnknownBroker, codeBrokerIDNotRegistered},
	{request.ErrStaleBrokerEpoch, codeStaleBrokerEpoch},
	{request.ErrOffsetOutOfRange, codeOffsetOutOfRange},
	{config.ErrInvalid, codeInvalidConfig},

	{group.ErrUnknownMember, codeUnknownMemberID},
	{group.ErrIllegalGeneration, codeIllegalGeneration},
	{group.ErrInconsistentProtocol, codeInconsistentGroupProtocol},
	{group.ErrRebalanceInProgress, codeRebalanceInProgress},
	{group.ErrFencedInstance, codeFencedInstanceID},
	{group.ErrGroupMaxSize, codeGroupMaxSizeReached},
	{group.ErrMemberIDRequired, codeMemberIDRequired},
	{group.ErrInvalidSessionTimeout, codeInvalidSessionTimeout},
	{group.ErrInvalidGroupID, codeInvalidGroupID},
	{group.ErrNonEmptyGroup, codeNonEmptyGroup},
	{group.ErrGroupIDNotFound, codeGroupIDNotFound},
	{group.ErrSubscribedToTopic, codeGroupSubscribedToTopic},
	{group.ErrUnreleasedInstance, codeUnreleasedInstanceID},
	{group.ErrUnsupportedAssignor, codeUnsupportedAssignor},
	{group.ErrStaleMemberEpoch, codeStaleMemberEpoch},
	{group.ErrUnsupportedVersion, codeUnsupportedVersion},
	{group.ErrFencedMemberEpoch, codeFencedMemberEpoch},
	{group.ErrInvalidRegex, codeInvalidRegularExpression},
	{group.ErrInvalidRequest, codeInvalidRequest},
	{group.ErrInvalidCommitOffsetSize, codeInvalidCommitOffsetSize},
	{group.ErrOffsetMetadataTooLarge, codeOffsetMetadataTooLarge},
	{group.ErrCoordinatorLoading, codeCoordinatorLoadInProgress},
	{group.ErrNotCoordinator, codeNotCoordinator},
	{group.ErrCoordinatorNotAvailable, codeCoordinatorNotAvailable},
	{group.ErrUnknownTopicOrPartition, codeUnknownTopicOrPartition},
	{group.ErrUnknownTopicID, codeUnknownTopicID},
	{group.ErrUnstableOffset, codeUnstableOffsetCommit},

	{fetchsession.ErrUnknown, codeFetchSessionIDNotFound},
	{fetchsession.ErrEpoch, codeInvalidFetchSessionEpoch},
	{fetchsession.ErrTopicIDs, codeFetchSessionTopicID},

	{recordbatch.ErrCorrupt, codeCorruptMessage},
	{context.DeadlineExceeded, codeRequestTimedOut},
	{context.Canceled, codeRequestTimedOut},
}

// codeOf is the code that answers an error.
func codeOf(err error) int16 {
	if err == nil {
		return codeNone
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return codeUnknownServerError
}

// Texts that Apache Kafka sends with a code that has nothing more to say.
const (
	textUnknownTopic   = "This server does not host this topic-partition."
	textUnknownTopicID = "This server does not host this topic ID."
	textInvalidRequest = "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details."
	textDeletionOff    = "Topic deletion is disabled."
)

// outcome is a code and the sentence that goes with it; nil: none.
type outcome struct {
	code int16
	text *string
}

func refused(code int16, text string) outcome { return outcome{code, &text} }

// outcomeOf answers an error with its own sentence.
func outcomeOf(err error) outcome {
	if err == nil {
		return outcome{}
	}
	return refused(codeOf(err), err.Error())
}

// groupCode answers an error of a request about a group: one that ended before
// its answer was there may be asked again. key is the request's.
func (h *Handler) groupCode(key int16, groupID string, err error) int16 {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return codeCoordinatorNotAvailable
	}
	code := codeOf(err)
	if code == codeUnknownServerError {
		h.cfg.Logger.Error("a request about a group failed", "key", key, "group", groupID[:min(len(groupID), groupShown)], "error", err)
	}
	return code
}

// groupShown is how much of a group's id the log repeats, in bytes.
const groupShown = 200

// groupText is the sentence that goes with an error of a group: what the error
// says more than its kind, or the kind.
func groupText(err error) *string {
	text := err.Error()
	for _, c := range codes {
		if errors.Is(err, c.err) {
			if rest, ok := strings.CutPrefix(text, c.err.Error()+": "); ok {
				text = rest
			}
			break
		}
	}
	return &text
}
