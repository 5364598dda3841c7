package quorum

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"strandline/metadata/disk"
	"strandline/metadata/store"
)

func TestEntry(t *testing.T) {
	for _, l := range []raft.Log{
		{Index: 1, Term: 1, Type: raft.LogNoop},
		{Index: 7, Term: 300, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte("x"), AppendedAt: time.Unix(5, 6)},
	} {
		var got raft.Log
		b := appendEntry(nil, &l)
		require.NoError(t, decodeEntry(l.Index, b, &got))
		require.Equal(t, l, got)
		for n := range len(b) - len(l.Data) {
			require.Error(t, decodeEntry(1, b[:n], &got), "cut at %d", n)
		}
	}
	var got raft.Log
	require.ErrorIs(t, decodeEntry(1, []byte{9, 0, 1, 0, 0}, &got), errEntryFormat)
}

func FuzzEntry(f *testing.F) {
	f.Add(appendEntry(nil, &raft.Log{Term: 3, Data: []byte("d"), Extensions: []byte("e"), AppendedAt: time.Unix(1, 2)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var l, again raft.Log
		if decodeEntry(1, b, &l) != nil {
			return
		}
		require.NoError(t, decodeEntry(1, appendEntry(nil, &l), &again))
		require.Equal(t, l, again)
	})
}

// sample makes a folder with files and its stream.
func sample(t require.TestingT, fs disk.FS) (files []snapshotFile, stream []byte) {
	require.NoError(t, fs.MkdirAll("/from"))
	for name, data := range map[string]string{"a": "alpha", "b": "", "long-name": "0123456789"} {
		require.NoError(t, disk.WriteFileAtomic(fs, "/from/"+name, []byte(data)))
	}
	for _, name := range []string{"a", "b", "long-name"} {
		info, err := fs.Stat("/from/" + name)
		require.NoError(t, err)
		files = append(files, snapshotFile{Name: name, Bytes: info.Bytes})
	}
	r := newStreamReader(fs, "/from", 42, files)
	stream, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return files, stream
}

func receive(fs disk.FS, stream io.Reader) (*streamWriter, error) {
	_ = fs.MkdirAll("/to")
	w := &streamWriter{fs: fs, dir: "/to", name: "s"}
	_, err := io.Copy(w, stream)
	if err == nil {
		err = w.finish()
	}
	return w, errors.Join(err, w.abort())
}

func TestStream(t *testing.T) {
	fs := disk.NewCrash(1)
	files, stream := sample(t, fs)
	require.Len(t, stream, int(streamBytes(files)), "Q4")
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "bytewise": iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		w, err := receive(fs, r)
		require.NoError(t, err, name)
		require.Equal(t, uint64(42), w.applied)
		require.Equal(t, files, w.files)
		for _, f := range files {
			want, err := disk.ReadFile(fs, "/from/"+f.Name)
			require.NoError(t, err)
			got, err := disk.ReadFile(fs, "/to/"+f.Name)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.NoError(t, fs.RemoveAll("/to"))
	}

	var corrupt *CorruptError
	for n := range stream {
		_, err := receive(disk.NewCrash(1), bytes.NewReader(stream[:n]))
		require.ErrorAs(t, err, &corrupt, "cut at %d", n)
		flipped := bytes.Clone(stream)
		flipped[n] ^= 0x40
		_, err = receive(disk.NewCrash(1), bytes.NewReader(flipped))
		require.Error(t, err, "flipped at %d", n)
	}
	_, err := receive(disk.NewCrash(1), bytes.NewReader(append(bytes.Clone(stream), 0)))
	require.ErrorIs(t, err, errStreamMore)
	for _, name := range []string{"", ".", "..", "a/b", "/etc", `a\b`} {
		_, err := receive(disk.NewCrash(1), bytes.NewReader(streamHeader(1, []snapshotFile{{Name: name}})))
		require.ErrorIs(t, err, errStreamName, name)
	}

	// A file that shrank under the reader.
	f, err := fs.Open("/from/long-name")
	require.NoError(t, err)
	require.NoError(t, f.Truncate(3))
	require.NoError(t, f.Close())
	_, err = io.ReadAll(newStreamReader(fs, "/from", 42, files))
	require.ErrorAs(t, err, &corrupt)
}

func FuzzStream(f *testing.F) {
	_, stream := sample(f, disk.NewCrash(1))
	f.Add(stream)
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := disk.NewCrash(1)
		w, err := receive(fs, bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := io.ReadAll(newStreamReader(fs, "/to", w.applied, w.files))
		require.NoError(t, err)
		require.Equal(t, b, again)
	})
}

func TestLogStore(t *testing.T) {
	fs := disk.NewCrash(1)
	open := func() (*logStore, chan struct{}, func()) {
		db, err := store.Open(store.Config{FS: fs, Dir: "/raft"})
		require.NoError(t, err)
		due := make(chan struct{}, 1)
		l, err := newLogStore(db, Limits{SnapshotBytes: 1000, SnapshotEntries: 4, TrailingBytes: 30, TrailingEntries: 3}, due)
		require.NoError(t, err)
		return l, due, func() { require.NoError(t, db.Close()) }
	}
	l, due, done := open()
	bounds := func(first, last uint64) {
		t.Helper()
		f, err := l.FirstIndex()
		require.NoError(t, err)
		z, err := l.LastIndex()
		require.NoError(t, err)
		require.Equal(t, []uint64{first, last}, []uint64{f, z})
	}
	bounds(0, 0)
	require.NoError(t, l.StoreLogs(nil))
	for i := uint64(1); i <= 3; i++ {
		require.NoError(t, l.StoreLog(&raft.Log{Index: i, Term: 1}))
	}
	require.Empty(t, due)
	require.NoError(t, l.StoreLogs([]*raft.Log{{Index: 4, Term: 2, Data: []byte("d")}, {Index: 5, Term: 2}}))
	require.Len(t, due, 1)
	bounds(1, 5)
	require.Equal(t, uint64(3), l.snapshotStarts())
	var e raft.Log
	require.NoError(t, l.GetLog(4, &e))
	require.Equal(t, raft.Log{Index: 4, Term: 2, Data: []byte("d")}, e)
	require.ErrorIs(t, l.GetLog(6, &e), raft.ErrLogNotFound)

	require.NoError(t, l.DeleteRange(1, 2))
	bounds(3, 5)
	require.NoError(t, l.DeleteRange(5, 5))
	bounds(3, 4)
	require.NoError(t, l.SetUint64([]byte("k"), 7))
	done()
	l, _, done = open()
	bounds(3, 4)
	n, err := l.GetUint64([]byte("k"))
	require.NoError(t, err)
	require.Equal(t, uint64(7), n)
	n, err = l.GetUint64([]byte("none"))
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, l.Set([]byte("k"), []byte("x")))
	_, err = l.GetUint64([]byte("k"))
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.NoError(t, l.DeleteRange(3, 4))
	bounds(0, 0)
	require.NoError(t, l.StoreLog(&raft.Log{Index: 100, Term: 3}))
	bounds(100, 100)
	done()
}
