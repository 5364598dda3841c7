package consumer

import (
	"fmt"

	"strandline/broker/group"
)

// MemberEpoch reads the epoch of a member out of the value of its record of type
// group.ConsumerCurrentAssignmentRecord, without the rest of the group. Errors:
// group.ErrMalformedRecord, group.ErrUnknownRecord.
func MemberEpoch(value []byte) (int32, error) {
	v, err := decodeValue(kindCurrent, value)
	if err != nil {
		return 0, err
	}
	current, ok := v.(currentValue)
	if !ok {
		return 0, fmt.Errorf("%w: no assignment", group.ErrMalformedRecord)
	}
	return current.epoch, nil
}
