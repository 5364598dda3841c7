package leaderepoch_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/leaderepoch"
)

func TestCheckpointIsKafkas(t *testing.T) {
	l := list(entries{{2, 5}, {4, 11}, {7, 9000000000}}...)
	const text = "0\n3\n2 5\n4 11\n7 9000000000\n"
	require.Equal(t, text, string(l.Marshal()))
	parsed, err := leaderepoch.Parse([]byte(text))
	require.NoError(t, err)
	require.Equal(t, l.Entries(), parsed.Entries())
	require.Equal(t, "0\n0\n", string(list().Marshal()))
	empty, err := leaderepoch.Parse([]byte("0\n0"))
	require.NoError(t, err)
	require.Zero(t, empty.Len())
}

func TestParseNamesTheLine(t *testing.T) {
	for text, line := range map[string]int{
		"":                       1,
		"1\n0\n":                 1,
		"0":                      2,
		"0\nx\n":                 2,
		"0\n2\n1 1\n":            2,
		"0\n0\n1 1\n":            2,
		"0\n-1\n":                2,
		"0\n1\n1\n":              3,
		"0\n1\n1 2 3\n":          3,
		"0\n1\na 2\n":            3,
		"0\n1\n-1 2\n":           3,
		"0\n1\n2 -2\n":           3,
		"0\n1\n2147483648 2\n":   3,
		"0\n2\n1 5\n1 6\n":       4,
		"0\n2\n1 5\n2 5\n":       4,
		"0\n3\n1 5\n\n2 6\n":     4,
		"0\n2\n1 5\n2 6\ntail\n": 2,
	} {
		_, err := leaderepoch.Parse([]byte(text))
		require.ErrorIs(t, err, leaderepoch.ErrCorrupt, "%q", text)
		var parse *leaderepoch.ParseError
		require.ErrorAs(t, err, &parse)
		require.Equal(t, line, parse.Line, "%q: %v", text, err)
	}
}

// FuzzParse: no text panics, and what parses is written and parsed as the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte("0\n3\n2 5\n4 11\n7 20\n"))
	f.Add([]byte("0\n0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := leaderepoch.Parse(data)
		if err != nil {
			return
		}
		again, err := leaderepoch.Parse(l.Marshal())
		if err != nil || !bytes.Equal(again.Marshal(), l.Marshal()) {
			t.Fatalf("not the same again: %v", err)
		}
	})
}
