package main

import (
	"bufio"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for in, want := range map[string][]string{
		"":                   nil,
		"\n":                 {""},
		"a":                  {"a"},
		"a\r\n\nb\n":         {"a", "", "b"},
		long + "\n" + "tail": {long, "tail"},
	} {
		var got []string
		p := &produceFlags{}
		require.NoError(t, p.lines(context.Background(), "t", strings.NewReader(in), func(r *kgo.Record) { got = append(got, string(r.Value)) }))
		require.Equal(t, want, got)
	}
}

func TestLineThatIsTooLong(t *testing.T) {
	in := bufio.NewReader(strings.NewReader(strings.Repeat("x", maxLineBytes+1)))
	_, err := readLine(in)
	require.ErrorIs(t, err, bufio.ErrTooLong)
}

func TestNullKeysAndValues(t *testing.T) {
	type pair struct{ key, value []byte }
	records := func(p produceFlags, in string) (got []pair) {
		require.NoError(t, p.lines(context.Background(), "t", strings.NewReader(in), func(r *kgo.Record) { got = append(got, pair{r.Key, r.Value}) }))
		return got
	}
	in := "k=v\nk=\nk=-\n-=v\n-\n"
	require.Equal(t, []pair{
		{[]byte("k"), []byte("v")}, {[]byte("k"), []byte{}}, {[]byte("k"), nil}, {nil, []byte("v")}, {nil, nil},
	}, records(produceFlags{keySeparator: "=", nullMarker: "-"}, in))
	require.Equal(t, []pair{
		{[]byte("k"), []byte("v")}, {[]byte("k"), []byte{}}, {[]byte("k"), []byte("-")}, {[]byte("-"), []byte("v")}, {nil, []byte("-")},
	}, records(produceFlags{keySeparator: "="}, in))
}
