package leaderepoch

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"strandline/metadata/cluster"
)

// checkpointVersion is the first line of the file.
const checkpointVersion = "0"

// ErrCorrupt is matched by every error of Parse.
var ErrCorrupt = errors.New("corrupt leader epoch checkpoint")

// ParseError says where a checkpoint is wrong; the reader adds the file.
type ParseError struct {
	// Line counts from 1.
	Line  int
	Cause string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("%v: line %d: %s", ErrCorrupt, e.Line, e.Cause)
}

func (e *ParseError) Unwrap() error { return ErrCorrupt }

// Marshal writes the list as Kafka's leader-epoch-checkpoint file: a version
// line, the number of entries, and a line "epoch start" for each.
func (l *List) Marshal() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%d\n", checkpointVersion, len(l.entries))
	for _, e := range l.entries {
		fmt.Fprintf(&b, "%d %d\n", e.Epoch, e.Start)
	}
	return b.Bytes()
}

// Parse reads what Marshal, or Kafka, wrote. Entries out of order are refused,
// as is a count that does not fit: the file is rebuilt from the log then.
func Parse(data []byte) (*List, error) {
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if strings.TrimSpace(lines[0]) != checkpointVersion {
		return nil, &ParseError{Line: 1, Cause: fmt.Sprintf("version %q, want %s", lines[0], checkpointVersion)}
	}
	if len(lines) < 2 {
		return nil, &ParseError{Line: 2, Cause: "no number of entries"}
	}
	count, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || count != len(lines)-2 {
		return nil, &ParseError{Line: 2, Cause: fmt.Sprintf("number of entries %q, but %d lines follow", lines[1], len(lines)-2)}
	}
	l := &List{entries: make([]Entry, 0, count)}
	for i, line := range lines[2:] {
		e, err := parseEntry(line)
		if err != nil {
			return nil, &ParseError{Line: i + 3, Cause: err.Error()}
		}
		if last, ok := l.Latest(); ok && (e.Epoch <= last.Epoch || e.Start <= last.Start) {
			return nil, &ParseError{Line: i + 3, Cause: "entries do not rise"}
		}
		l.entries = append(l.entries, e)
	}
	return l, nil
}

func parseEntry(line string) (Entry, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 {
		return Entry{}, fmt.Errorf("%q is not \"epoch start\"", line)
	}
	epoch, err := strconv.ParseInt(fields[0], 10, 32)
	if err != nil || epoch < 0 {
		return Entry{}, fmt.Errorf("bad epoch %q", fields[0])
	}
	start, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || start < 0 {
		return Entry{}, fmt.Errorf("bad start offset %q", fields[1])
	}
	return Entry{Epoch: cluster.LeaderEpoch(epoch), Start: cluster.Offset(start)}, nil
}
