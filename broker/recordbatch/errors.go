package recordbatch

import (
	"errors"
	"fmt"
)

// ErrCorrupt is matched by every error that says that bytes are not a valid
// batch.
var ErrCorrupt = errors.New("corrupt record batch")

// The ways in which a batch can be corrupt.
var (
	// ErrTruncated: fewer bytes than the length field says, or than a header has.
	ErrTruncated = fmt.Errorf("%w: truncated", ErrCorrupt)
	// ErrBadLength: a length field that no batch can have.
	ErrBadLength = fmt.Errorf("%w: impossible length", ErrCorrupt)
	// ErrBadMagic: a format version other than 2.
	ErrBadMagic = fmt.Errorf("%w: unsupported magic", ErrCorrupt)
	// ErrBadCRC: the checksum does not match.
	ErrBadCRC = fmt.Errorf("%w: checksum mismatch", ErrCorrupt)
	// ErrBadCount: the record count does not fit the records or the offsets.
	ErrBadCount = fmt.Errorf("%w: wrong record count", ErrCorrupt)
	// ErrBadRecord: a record that does not parse.
	ErrBadRecord = fmt.Errorf("%w: malformed record", ErrCorrupt)
	// ErrBadCompression: the records do not decompress.
	ErrBadCompression = fmt.Errorf("%w: bad compressed data", ErrCorrupt)
	// ErrTooLarge: the records decompress to more bytes than are allowed.
	ErrTooLarge = fmt.Errorf("%w: decompressed records too large", ErrCorrupt)
	// ErrUnknownCodec: a compression type that does not exist.
	ErrUnknownCodec = fmt.Errorf("%w: unknown compression type", ErrCorrupt)
)

// ErrInvalid is matched by what VerifyProduced and Examine refuse although the
// checksum is right (Kafka: INVALID_RECORD). An error may match ErrCorrupt too;
// then ErrInvalid decides.
var ErrInvalid = errors.New("invalid record batch")

// ErrInvalidTimestamp is the reason of a RejectedError where at least one
// record has a timestamp that the topic does not take (Kafka: INVALID_TIMESTAMP).
var ErrInvalidTimestamp = errors.New("one or more records have been rejected due to invalid timestamp")

// RecordError says what is wrong with one record of a batch.
type RecordError struct {
	// Index counts the records of the batch from 0 (Kafka: batch_index).
	Index   int32
	Message string
}

// RecordErrorsMax bounds the list of a RejectedError; further errors are left
// out.
const RecordErrorsMax = 1000

// RejectedError refuses a whole batch because of some of its records.
type RejectedError struct {
	// Reason is ErrInvalidTimestamp where any record has a bad timestamp, else
	// ErrInvalid.
	Reason  error
	Records []RecordError
}

func (e *RejectedError) Error() string {
	if len(e.Records) == 0 {
		return e.Reason.Error()
	}
	return fmt.Sprintf("%v: %d records, the first at index %d: %s",
		e.Reason, len(e.Records), e.Records[0].Index, e.Records[0].Message)
}

func (e *RejectedError) Unwrap() error { return e.Reason }

func invalid(err error) error { return fmt.Errorf("%w: %w", ErrInvalid, err) }
