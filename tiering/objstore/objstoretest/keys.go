package objstoretest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/tiering/objstore"
)

func isExists(err error) bool { return errors.Is(err, objstore.ErrExists) }

func testList(t *testing.T, _ Options, s objstore.Store) {
	require.Empty(t, list(t, s, key(s, ""), ""))
	// In the order of bytes: '-' < '.' < '/' < '0', which no tree of folders
	// gives by itself.
	names := []string{"a-b", "a.b", "a/b/c", "a/b/d", "a/c", "a0", "b", "c/1", "c/10", "c/2"}
	for _, n := range slices.Backward(names) {
		put(t, s, key(s, n), []byte(n))
	}
	in := func(names ...string) []string {
		out := []string{}
		for _, n := range names {
			out = append(out, key(s, n))
		}
		return out
	}
	require.Equal(t, in(names...), list(t, s, key(s, ""), ""))
	require.Equal(t, in(names[:6]...), list(t, s, key(s, "a"), ""))
	require.Equal(t, in("a/b/c", "a/b/d", "a/c"), list(t, s, key(s, "a/"), ""))
	require.Equal(t, in("a/b/c", "a/b/d"), list(t, s, key(s, "a/b"), ""))
	require.Equal(t, in("c/1", "c/10"), list(t, s, key(s, "c/1"), ""))
	require.Empty(t, list(t, s, key(s, "c/3"), ""))
	require.Empty(t, list(t, s, key(s, "d/e/f"), ""))
	for i, n := range names {
		require.Equal(t, in(names[i+1:]...), list(t, s, key(s, ""), key(s, n)), "after %s", n)
	}
	require.Equal(t, in("a/b/d", "a/c"), list(t, s, key(s, "a/"), key(s, "a/b/c")))
	require.Equal(t, in("a/c", "a0", "b", "c/1", "c/10", "c/2"), list(t, s, key(s, ""), key(s, "a/b/zzz")), "after a key that is not there")
	require.Equal(t, in("a/b/c", "a/b/d", "a/c"), list(t, s, key(s, "a/"), key(s, "a")), "after a key before the prefix")
	require.Empty(t, list(t, s, key(s, "a/"), key(s, "b")), "after a key past the prefix")
	for info, err := range s.List(t.Context(), key(s, "a/b/d"), "") {
		require.NoError(t, err)
		require.EqualValues(t, 5, info.Bytes)
	}
	n := 0
	for _, err := range s.List(t.Context(), key(s, ""), "") {
		require.NoError(t, err)
		if n++; n == 3 {
			break
		}
	}
	require.Equal(t, 3, n)
}

// testMany passes the page and batch limits.
func testMany(t *testing.T, o Options, s objstore.Store) {
	count := o.Many
	want := make([]string, count)
	for i := range want {
		want[i] = key(s, fmt.Sprintf("many/%02d/%05d.seg", i/30, i))
	}
	work := make(chan string)
	done := make(chan error, 8)
	for range cap(done) {
		go func() {
			var err error
			for k := range work {
				if _, perr := s.Put(t.Context(), k, objstore.NewBytesBody([]byte(k)), objstore.PutOptions{}); perr != nil {
					err = perr
				}
			}
			done <- err
		}()
	}
	for _, k := range want {
		work <- k
	}
	close(work)
	for range cap(done) {
		require.NoError(t, <-done)
	}
	require.Equal(t, want, list(t, s, key(s, "many/"), ""))
	require.Equal(t, want[count/2:], list(t, s, key(s, "many/"), want[count/2-1]))
	require.NoError(t, s.Delete(t.Context(), append(slices.Clone(want[:count-20]), key(s, "many/none"))...))
	require.Equal(t, want[count-20:], list(t, s, key(s, "many/"), ""))
	require.NoError(t, s.Delete(t.Context(), want...))
	require.Empty(t, list(t, s, key(s, "many"), ""))
}

func testDelete(t *testing.T, _ Options, s objstore.Store) {
	k := key(s, "deleted", "object")
	require.NoError(t, s.Delete(t.Context()))
	require.NoError(t, s.Delete(t.Context(), k))
	put(t, s, k, []byte("x"))
	put(t, s, key(s, "deleted", "other"), []byte("y"))
	require.NoError(t, s.Delete(t.Context(), k, k))
	_, err := s.Head(t.Context(), k)
	require.ErrorIs(t, err, objstore.ErrNotFound)
	require.NoError(t, s.Delete(t.Context(), k))
	require.NoError(t, s.Delete(t.Context(), key(s, "deleted")), "a folder is no object")
	require.Equal(t, "y", string(get(t, s, key(s, "deleted", "other"), 0, -1)))
}

func testInvalidKeys(t *testing.T, _ Options, s objstore.Store) {
	put(t, s, key(s, "witness"), []byte("x"))
	for _, k := range []string{
		"", "/", "a//b", "a/", "/a", ".", "a/../b", "a/./b", "nul\x00", "back\\slash", "new\nline", "\xff\xfe",
		".strandline-tmp/x", "a/.strandline-tmp/x", strings.Repeat("x", 201), strings.Repeat("x/", 600) + "x",
	} {
		_, err := s.Put(t.Context(), k, objstore.NewBytesBody([]byte("x")), objstore.PutOptions{})
		require.ErrorIs(t, err, objstore.ErrInvalidKey, "%q", k)
		require.False(t, objstore.IsRetriable(err))
		_, err = s.Get(t.Context(), k, 0, -1)
		require.ErrorIs(t, err, objstore.ErrInvalidKey, "%q", k)
		_, err = s.Head(t.Context(), k)
		require.ErrorIs(t, err, objstore.ErrInvalidKey, "%q", k)
		require.ErrorIs(t, s.Delete(t.Context(), key(s, "witness"), k), objstore.ErrInvalidKey, "%q", k)
	}
	_, err := s.Head(t.Context(), key(s, "witness"))
	require.NoError(t, err, "a batch with an invalid key deletes nothing")
}

func testOddKeys(t *testing.T, _ Options, s objstore.Store) {
	keys := []string{"with space", "plus+and%25percent", "ümläut/日本", "quote\"'&<xml>", "a=b;c,d!@$()*~", "UPPER/lower", "...dots", strings.Repeat("long-", 40)}
	for i, k := range keys {
		put(t, s, key(s, "odd", k), fmt.Appendf(nil, "%d", i))
	}
	got := list(t, s, key(s, "odd/"), "")
	want := []string{}
	for i, k := range keys {
		require.Equal(t, fmt.Sprint(i), string(get(t, s, key(s, "odd", k), 0, -1)), "%q", k)
		want = append(want, key(s, "odd", k))
	}
	slices.Sort(want)
	require.Equal(t, want, got)
	require.NoError(t, s.Delete(t.Context(), want...))
	require.Empty(t, list(t, s, key(s, "odd/"), ""))
}
