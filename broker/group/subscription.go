package group

import "fmt"

// SubscribedTopics reads the topics that a consumer subscribes to out of its
// metadata (ConsumerProtocol): the part that every version begins with. The
// error is ErrMalformedRecord.
func SubscribedTopics(metadata []byte) ([]string, error) {
	r := keyReader{rest: metadata}
	version, n := r.int16(), r.int32()
	if r.bad || version < 0 || n < 0 || int(n) > len(r.rest)/2 {
		return nil, fmt.Errorf("subscription of %d bytes: %w", len(metadata), ErrMalformedRecord)
	}
	topics := make([]string, n)
	for i := range topics {
		topics[i] = r.string()
	}
	if userData := r.int32(); userData > 0 {
		r.next(int(userData))
	}
	if r.bad {
		return nil, fmt.Errorf("subscription of version %d: %w", version, ErrMalformedRecord)
	}
	return topics, nil
}
