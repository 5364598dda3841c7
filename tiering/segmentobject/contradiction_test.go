package segmentobject_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/broker/recordbatch"
	"strandline/metadata/cluster"
	"strandline/metadata/request"
	"strandline/tiering/objstore"
	"strandline/tiering/objstore/mem"
	"strandline/tiering/segmentobject"
)

// parts is an object taken apart: its checksums are made anew when it is put
// together, so that what it says is wrong and its bytes are right.
type parts struct {
	batches  []byte
	footer   segmentobject.Footer
	sections [][]byte
	// says is asked last, with every checksum but the footer's in place.
	says func(f *segmentobject.Footer)
}

func takeApart(t testing.TB, s sample) *parts {
	t.Helper()
	o := build(t, s.source())
	body := readBody(t, o)
	p := &parts{batches: bytes.Clone(s.bytes), footer: *o.Footer()}
	p.footer.Sections = append([]segmentobject.Section(nil), p.footer.Sections...)
	for _, sec := range p.footer.Sections {
		p.sections = append(p.sections, bytes.Clone(body[sec.Position:][:sec.Bytes]))
	}
	return p
}

func (p *parts) together() []byte {
	f := p.footer
	f.SegmentBytes = int64(len(p.batches))
	f.ChunkCRC32C = nil
	for rest := p.batches; len(rest) > 0; {
		n := min(int64(len(rest)), f.ChunkBytes)
		f.ChunkCRC32C = append(f.ChunkCRC32C, objstore.CRC32C(rest[:n]))
		rest = rest[n:]
	}
	body := bytes.Clone(p.batches)
	f.Sections = append([]segmentobject.Section(nil), f.Sections...)
	for i, data := range p.sections {
		s := &f.Sections[i]
		s.Position, s.Bytes, s.CRC32C = int64(len(body)), int64(len(data)), objstore.CRC32C(data)
		body = append(body, data...)
	}
	f.BodyCRC32C = objstore.CRC32C(body)
	if p.says != nil {
		p.says(&f)
	}
	return f.AppendForTesting(body)
}

func open(t testing.TB, b []byte) (*segmentobject.Index, error) {
	t.Helper()
	return segmentobject.OpenIndex(t.Context(), storeBytes(t, b), "k.seg", int64(len(b)))
}

func be64(v ...int64) (b []byte) {
	for _, n := range v {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// TestObjectsThatContradictThemselves: every checksum is right and one thing that
// the object says of itself is not. Opening finds it, and says where.
func TestObjectsThatContradictThemselves(t *testing.T) {
	s := makeSample(100, 60, 2000, 11)
	whole := takeApart(t, s).together()
	x, err := open(t, whole)
	require.NoError(t, err)
	require.Equal(t, readBody(t, build(t, s.source())), whole, "taken apart and put together it is the same")
	footerAt := x.Summary().ObjectBytes - x.Summary().FooterBytes
	offsetsAt, timesAt := x.Footer().Sections[0].Position, x.Footer().Sections[1].Position
	footer := func(change func(f *segmentobject.Footer)) func(p *parts) { return func(p *parts) { p.says = change } }
	const anywhere, atFooter = -1, -2
	for _, c := range []struct {
		name   string
		change func(p *parts)
		at     int64
		want   error
		text   string
	}{
		{"negative base", footer(func(f *segmentobject.Footer) { f.Base = -1 }), footerAt, segmentobject.ErrCorrupt, "offsets [-1,"},
		{"empty", footer(func(f *segmentobject.Footer) { f.End = f.Base }), footerAt, segmentobject.ErrCorrupt, "offsets [100, 100)"},
		{"negative partition", footer(func(f *segmentobject.Footer) { f.Partition = -1 }), footerAt, segmentobject.ErrCorrupt, "partition -1"},
		{"no batches", footer(func(f *segmentobject.Footer) { f.SegmentBytes = 0; f.ChunkCRC32C = nil }), footerAt, segmentobject.ErrCorrupt, "0 bytes of batches"},
		{"negative bytes", footer(func(f *segmentobject.Footer) { f.SegmentBytes = -1 }), footerAt, segmentobject.ErrCorrupt, "-1 bytes of batches"},
		{"batches in the footer", footer(func(f *segmentobject.Footer) { f.SegmentBytes = footerAt + 1 }), footerAt, segmentobject.ErrCorrupt, "bytes of batches before a footer"},
		{"chunks too small", footer(func(f *segmentobject.Footer) { f.ChunkBytes = 4095 }), footerAt, segmentobject.ErrCorrupt, "chunks of 4095 bytes"},
		{"chunks of nothing", footer(func(f *segmentobject.Footer) { f.ChunkBytes = 0 }), footerAt, segmentobject.ErrCorrupt, "chunks of 0 bytes"},
		{"chunks too large", footer(func(f *segmentobject.Footer) { f.ChunkBytes = 1 << 31 }), footerAt, segmentobject.ErrCorrupt, "chunks of 2147483648 bytes"},
		{"a chunk too many", footer(func(f *segmentobject.Footer) { f.ChunkCRC32C = append(f.ChunkCRC32C, 0) }), footerAt, segmentobject.ErrCorrupt, "2 chunks of"},
		{"a chunk too few", footer(func(f *segmentobject.Footer) { f.ChunkBytes = 4096 }), footerAt, segmentobject.ErrCorrupt, "1 chunks of 4096 bytes"},
		{"a gap between sections", footer(func(f *segmentobject.Footer) { f.Sections[2].Position++ }), footerAt, segmentobject.ErrCorrupt, "section 2 of type 3"},
		{"a negative section", footer(func(f *segmentobject.Footer) { f.Sections[2].Bytes = -1 }), footerAt, segmentobject.ErrCorrupt, "section 2 of type 3"},
		{"a section in the footer", footer(func(f *segmentobject.Footer) { f.Sections[4].Bytes++ }), footerAt, segmentobject.ErrCorrupt, "section 4 of type 5"},
		{"a section that ends early", footer(func(f *segmentobject.Footer) { f.Sections[4].Bytes-- }), footerAt, segmentobject.ErrCorrupt, "the sections end at"},
		{"another body", footer(func(f *segmentobject.Footer) { f.BodyCRC32C++ }), footerAt, segmentobject.ErrCorrupt, "checksum before the footer"},
		{"another chunk", footer(func(f *segmentobject.Footer) { f.ChunkCRC32C[0]++ }), footerAt, segmentobject.ErrCorrupt, "checksum before the footer"},
		{"version 2", footer(func(f *segmentobject.Footer) { f.FormatVersion = 2 }), anywhere, segmentobject.ErrVersion, "has version 2, this program reads up to 1"},
		{"version 0", footer(func(f *segmentobject.Footer) { f.FormatVersion = 0 }), footerAt, segmentobject.ErrCorrupt, "format version 0"},
		{"version -1", footer(func(f *segmentobject.Footer) { f.FormatVersion = -1 }), footerAt, segmentobject.ErrCorrupt, "format version -1"},

		{"a section twice", func(p *parts) {
			p.footer.Sections = append(p.footer.Sections, p.footer.Sections[1])
			p.sections = append(p.sections, p.sections[1])
		}, anywhere, segmentobject.ErrCorrupt, "second section of type 2"},
		{"no epochs", func(p *parts) { p.footer.Sections, p.sections = p.footer.Sections[:4], p.sections[:4] }, atFooter, segmentobject.ErrCorrupt, "no section of type 5"},
		{"no offsets", func(p *parts) { p.footer.Sections, p.sections = p.footer.Sections[1:], p.sections[1:] }, atFooter, segmentobject.ErrCorrupt, "no section of type 1"},
		{"a section that must be known", func(p *parts) {
			p.footer.Sections = append(p.footer.Sections, segmentobject.Section{Type: 7, Flags: 1})
			p.sections = append(p.sections, []byte("what a later program writes"))
		}, anywhere, segmentobject.ErrVersion, "has a section of type 7"},
		{"fewer entries than it has", func(p *parts) { p.footer.Sections[0].Count-- }, offsetsAt, segmentobject.ErrCorrupt, "entries"},
		{"more epochs than it has", func(p *parts) { p.footer.Sections[4].Count++ }, anywhere, segmentobject.ErrCorrupt, "section of type 5"},
		{"half an entry", func(p *parts) { p.sections[2] = p.sections[2][:40] }, anywhere, segmentobject.ErrCorrupt, "section of type 3: 40 bytes"},
		{"no entries", func(p *parts) { p.sections[0], p.footer.Sections[0].Count = nil, 0 }, offsetsAt, segmentobject.ErrCorrupt, "does not cover the batches"},
		{"none for the first batch", func(p *parts) {
			p.sections[0] = p.sections[0][16:]
			p.footer.Sections[0].Count--
		}, offsetsAt, segmentobject.ErrCorrupt, "does not cover the batches"},
		{"an entry at the end offset", func(p *parts) {
			copy(p.sections[0][len(p.sections[0])-16:], be64(int64(s.end-s.base)))
		}, offsetsAt, segmentobject.ErrCorrupt, "does not cover the batches"},
		{"an offset twice", func(p *parts) { copy(p.sections[0][32:], p.sections[0][16:24]) }, offsetsAt, segmentobject.ErrCorrupt, "type 1 do not rise"},
		{"a position twice", func(p *parts) { copy(p.sections[0][40:], p.sections[0][24:32]) }, offsetsAt, segmentobject.ErrCorrupt, "type 1 do not rise"},
		{"a position past the batches", func(p *parts) {
			copy(p.sections[0][len(p.sections[0])-8:], be64(int64(len(s.bytes))))
		}, offsetsAt, segmentobject.ErrCorrupt, "type 1 do not rise"},
		{"a negative offset", func(p *parts) { copy(p.sections[0], be64(-1)) }, offsetsAt, segmentobject.ErrCorrupt, "type 1 do not rise"},
		{"a negative position", func(p *parts) { copy(p.sections[0][8:], be64(-1)) }, offsetsAt, segmentobject.ErrCorrupt, "type 1 do not rise"},
		{"a time twice", func(p *parts) { copy(p.sections[1][16:], p.sections[1][:8]) }, timesAt, segmentobject.ErrCorrupt, "type 2 do not rise"},
		{"a negative time", func(p *parts) { copy(p.sections[1], be64(-1)) }, timesAt, segmentobject.ErrCorrupt, "type 2 do not rise"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := takeApart(t, s)
			c.change(p)
			b := p.together()
			_, err := open(t, b)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
			require.ErrorContains(t, err, "k.seg")
			var corrupt *segmentobject.CorruptError
			if c.at != anywhere {
				at := c.at
				if at == atFooter {
					at = int64(len(b)) - footerBytes(b)
				}
				require.ErrorAs(t, err, &corrupt)
				require.Equal(t, at, corrupt.Position)
			}
			_, err = segmentobject.Verify(t.Context(), storeBytes(t, b), "k.seg", -1)
			require.ErrorIs(t, err, c.want)
		})
	}
}

// TestUnknownSectionsAreSkipped: one that a reader need not know changes nothing.
func TestUnknownSectionsAreSkipped(t *testing.T) {
	s := makeSample(100, 60, 2000, 11)
	p := takeApart(t, s)
	p.footer.Sections = append(p.footer.Sections, segmentobject.Section{Type: 6, Count: 3})
	p.sections = append(p.sections, []byte("what a later program writes"))
	x, err := segmentobject.Verify(t.Context(), storeBytes(t, p.together()), "k.seg", -1)
	require.NoError(t, err)
	require.Len(t, x.Footer().Sections, 6)
	r, ok := x.Find(s.end - 1)
	require.True(t, ok)
	require.Positive(t, r.Start)
}

// TestChunksOfAnySize: readers take it from the footer; the last chunk may be a
// single byte.
func TestChunksOfAnySize(t *testing.T) {
	s := makeSample(100, 60, 2000, 11)
	n := int64(len(s.bytes))
	for _, chunk := range []int64{4096, n / 3, n - 1, n, n + 1, 1<<31 - 1} {
		p := takeApart(t, s)
		p.footer.ChunkBytes = chunk
		b := p.together()
		x, err := segmentobject.Verify(t.Context(), storeBytes(t, b), "k.seg", -1)
		require.NoError(t, err, "chunks of %d bytes", chunk)
		require.NoError(t, x.VerifyChunks(0, s.bytes))
		require.NoError(t, x.VerifyChunksAt(0, bytes.NewReader(s.bytes), 0, n))
		require.Len(t, x.Footer().ChunkCRC32C, int((n+chunk-1)/chunk))
		if chunk < n {
			for _, r := range []segmentobject.Range{{Start: 0, End: 1}, {Start: chunk - 1, End: chunk}, {Start: 1, End: chunk}} {
				require.Equal(t, segmentobject.Range{Start: 0, End: chunk}, x.Align(r))
			}
			require.Equal(t, segmentobject.Range{Start: 0, End: min(2*chunk, n)}, x.Align(segmentobject.Range{Start: chunk - 1, End: chunk + 1}))
		}
	}
}

// TestFooterLimits: smallest and largest footers, and what is none.
func TestFooterLimits(t *testing.T) {
	s := makeSample(100, 3, 50, 11)
	whole := takeApart(t, s).together()
	for _, c := range []struct {
		name        string
		footerBytes uint32
		at          int64
	}{
		{"too short", 147, int64(len(whole)) - 16},
		{"just as short as can be", 148, int64(len(whole)) - 148},
		{"the whole object", uint32(len(whole)), 0},
		{"longer than the object", uint32(len(whole)) + 1, int64(len(whole)) - 16},
		{"longer than any", segmentobject.MaxFooterBytesForTesting + 1, int64(len(whole)) - 16},
	} {
		b := bytes.Clone(whole)
		binary.BigEndian.PutUint32(b[len(b)-16:], c.footerBytes)
		_, err := open(t, b)
		var corrupt *segmentobject.CorruptError
		require.ErrorAs(t, err, &corrupt, c.name)
		require.Equal(t, c.at, corrupt.Position, c.name)
	}
	b := bytes.Clone(whole)
	b[len(b)-1]++
	_, err := open(t, b)
	requireCorruptAt(t, err, int64(len(b)-8), "not a segment object")
	for _, n := range []int{0, 15, 16, 147} {
		_, err = open(t, whole[len(whole)-n:])
		requireCorruptAt(t, err, 0, "too few for a segment object")
	}
	_, err = segmentobject.ParseIndexForTesting("k.seg", whole[len(whole)-15:], int64(len(whole)))
	requireCorruptAt(t, err, 0, "too few for a segment object")
	_, err = segmentobject.ParseIndexForTesting("k.seg", whole[len(whole)-200:], int64(len(whole)))
	requireCorruptAt(t, err, int64(len(whole))-footerBytes(whole), "in an index of 200")
	// The index of another place of the object.
	x, err := open(t, whole)
	require.NoError(t, err)
	_, err = segmentobject.ParseIndexForTesting("k.seg", whole[x.Summary().IndexPosition-1:], int64(len(whole)))
	requireCorruptAt(t, err, int64(len(whole))-footerBytes(whole), "the batches end at")
}

func footerBytes(b []byte) int64 { return int64(binary.BigEndian.Uint32(b[len(b)-16:])) }

func requireCorruptAt(t *testing.T, err error, position int64, text string) {
	t.Helper()
	var corrupt *segmentobject.CorruptError
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, position, corrupt.Position)
	require.ErrorContains(t, err, text)
}

// TestWhatTheCatalogSaysIsCompared: a summary that cannot be is refused before the
// store is asked, one that is another object's after.
func TestWhatTheCatalogSaysIsCompared(t *testing.T) {
	o := build(t, makeSample(100, 6, 40, 11).source())
	store := stored(t, o)
	for name, change := range map[string]func(s *request.ObjectSummary){
		"no index":              func(s *request.ObjectSummary) { s.IndexBytes, s.FooterBytes, s.IndexPosition = 0, 0, s.ObjectBytes },
		"negative":              func(s *request.ObjectSummary) { s.IndexBytes = -s.FooterBytes - 1; s.IndexPosition = s.ObjectBytes + 1 },
		"larger than the whole": func(s *request.ObjectSummary) { s.IndexBytes = s.ObjectBytes; s.IndexPosition = -s.FooterBytes },
		"not at the end":        func(s *request.ObjectSummary) { s.IndexPosition-- },
	} {
		sum := o.Summary()
		change(&sum)
		_, err := segmentobject.ReadIndex(t.Context(), store, "a/b.seg", sum)
		requireCorruptAt(t, err, 0, "the catalog says")
		require.Zero(t, store.gets.Load(), name)
	}
	for name, change := range map[string]func(s *request.ObjectSummary){
		"timestamp": func(s *request.ObjectSummary) { s.MaxTimestamp++ },
		"checksum":  func(s *request.ObjectSummary) { s.CRC32C++ },
		"records":   func(s *request.ObjectSummary) { s.RecordCount++ },
		"epoch":     func(s *request.ObjectSummary) { s.LastEpoch++ },
	} {
		sum := o.Summary()
		change(&sum)
		_, err := segmentobject.ReadIndex(t.Context(), store, "a/b.seg", sum)
		require.ErrorIs(t, err, segmentobject.ErrCorrupt, name)
		require.ErrorContains(t, err, "the object describes itself", name)
	}
	_, err := segmentobject.ReadIndex(t.Context(), store, "missing", o.Summary())
	require.ErrorIs(t, err, objstore.ErrNotFound)
	_, err = segmentobject.OpenIndex(t.Context(), store, "missing", -1)
	require.ErrorIs(t, err, objstore.ErrNotFound)
	_, err = segmentobject.OpenIndex(t.Context(), store, "missing", 1000)
	require.ErrorIs(t, err, objstore.ErrNotFound)
	_, err = segmentobject.Verify(t.Context(), store, "missing", 1000)
	require.ErrorIs(t, err, objstore.ErrNotFound)
}

// zeroStore is one object of zeroes with something at its end.
type zeroStore struct {
	objstore.Store
	bytes int64
	tail  []byte
	gets  [][2]int64
	fail  int // the GET that fails, counted from 1
}

func (z *zeroStore) Get(_ context.Context, _ string, off, n int64) (io.ReadCloser, error) {
	z.gets = append(z.gets, [2]int64{off, n})
	if len(z.gets) == z.fail {
		return nil, objstore.ErrUnavailable
	}
	b := make([]byte, n)
	if start := z.bytes - int64(len(z.tail)); off >= start {
		copy(b, z.tail[off-start:])
	} else if off+n > start {
		copy(b[start-off:], z.tail)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// TestLargeIndexesTakeAnotherGet: one GET where the index is in the last 256 KiB,
// a second for the rest, and one for a footer that is longer than that.
func TestLargeIndexesTakeAnotherGet(t *testing.T) {
	const chunk = 4096
	make1 := func(chunks, snapshotBytes int64) *zeroStore {
		p := takeApart(t, makeSample(0, 1, 10, 1))
		f := p.footer
		f.ChunkBytes, f.SegmentBytes = chunk, chunks*chunk
		f.ChunkCRC32C = make([]uint32, chunks)
		var body objstore.CRC32CCombiner
		crc := objstore.CRC32C(make([]byte, chunk))
		for i := range f.ChunkCRC32C {
			f.ChunkCRC32C[i] = crc
			body.Add(crc, chunk)
		}
		p.sections[3] = make([]byte, snapshotBytes)
		var tail []byte
		for i, data := range p.sections {
			s := &f.Sections[i]
			s.Position, s.Bytes, s.CRC32C = f.SegmentBytes+int64(len(tail)), int64(len(data)), objstore.CRC32C(data)
			body.Add(s.CRC32C, s.Bytes)
			tail = append(tail, data...)
		}
		f.BodyCRC32C = body.Sum()
		tail = f.AppendForTesting(tail)
		return &zeroStore{bytes: f.SegmentBytes + int64(len(tail)), tail: tail}
	}
	const most = segmentobject.OpenTailBytesForTesting
	rest := int64(len(make1(100, 0).tail))
	for _, c := range []struct {
		name             string
		chunks, snapshot int64
		gets             int
	}{
		{"small", 100, 0, 1},
		{"just in the first", 100, most - rest, 1},
		{"a byte more", 100, most - rest + 1, 2},
		{"a long footer", most/4 + 100, 0, 3},
	} {
		z := make1(c.chunks, c.snapshot)
		x, err := segmentobject.OpenIndex(t.Context(), z, "k.seg", z.bytes)
		require.NoError(t, err, c.name)
		require.Len(t, z.gets, c.gets, c.name)
		require.Equal(t, [2]int64{z.bytes - most, most}, z.gets[0])
		require.EqualValues(t, c.chunks, len(x.Footer().ChunkCRC32C))
		require.Len(t, x.ProducerSnapshot(), int(c.snapshot))
		require.Equal(t, int64(len(z.tail))+4*c.chunks, x.Bytes())
		for fail := 1; fail <= c.gets; fail++ {
			z := make1(c.chunks, c.snapshot)
			z.fail = fail
			_, err := segmentobject.OpenIndex(t.Context(), z, "k.seg", z.bytes)
			require.ErrorIs(t, err, objstore.ErrUnavailable, "%s, GET %d", c.name, fail)
		}
	}
}

// TestVerifyComparesTheFooterWithTheBatches: an object of which every part is
// right by itself, and that says of its batches what they are not.
func TestVerifyComparesTheFooterWithTheBatches(t *testing.T) {
	s := makeSample(100, 60, 2000, 11)
	_, err := segmentobject.Verify(t.Context(), storeBytes(t, takeApart(t, s).together()), "k.seg", -1)
	require.NoError(t, err)
	for name, change := range map[string]func(p *parts){
		"lowest timestamp":  func(p *parts) { p.footer.MinTimestamp-- },
		"highest timestamp": func(p *parts) { p.footer.MaxTimestamp++ },
		"records":           func(p *parts) { p.footer.RecordCount++ },
		"batches":           func(p *parts) { p.footer.BatchCount-- },
		"first epoch":       func(p *parts) { p.footer.FirstEpoch++ },
		"last epoch":        func(p *parts) { p.footer.LastEpoch-- },
		"base":              func(p *parts) { p.footer.Base-- },
		"end":               func(p *parts) { p.footer.End++ },
		"an offset too high": func(p *parts) {
			p.sections[0][23]++
		},
		"an offset that is no batch's": func(p *parts) { p.sections[0][31]++ },
		"the last offset that is no batch's": func(p *parts) {
			p.sections[0][len(p.sections[0])-1]--
		},
		"an entry at no batch": func(p *parts) {
			p.sections[0] = append(p.sections[0], be64(int64(s.end-s.base)-1, int64(len(s.bytes))-1)...)
			p.footer.Sections[0].Count++
		},
		"a time too low":  func(p *parts) { p.sections[1][7]-- },
		"a time too high": func(p *parts) { p.sections[1][7]++ },
		"no times": func(p *parts) {
			p.sections[1], p.footer.Sections[1].Count = nil, 0
		},
		"the last time missing": func(p *parts) {
			p.sections[1] = p.sections[1][:len(p.sections[1])-16]
			p.footer.Sections[1].Count--
		},
		"a time at no batch": func(p *parts) { p.sections[1][15]++ },
		"a time at a batch without an offset": func(p *parts) {
			copy(p.sections[1][8:16], be64(s.positions[1]))
		},
		"an offset missing where there is a time": func(p *parts) {
			p.sections[0] = append(p.sections[0][:16:16], p.sections[0][32:]...)
			p.footer.Sections[0].Count--
		},
	} {
		p := takeApart(t, s)
		change(p)
		b := p.together()
		_, err := open(t, b)
		require.NoError(t, err, "%s: opening does not read the batches", name)
		_, err = segmentobject.Verify(t.Context(), storeBytes(t, b), "k.seg", -1)
		require.ErrorIs(t, err, segmentobject.ErrCorrupt, name)
	}
	// Bad batches under good checksums of chunks.
	for name, change := range map[string]func(b []byte){
		"a length":      func(b []byte) { b[11]++ },
		"a magic":       func(b []byte) { b[16] = 1 },
		"a record":      func(b []byte) { b[70]++ },
		"a base offset": func(b []byte) { b[7]++ },
	} {
		p := takeApart(t, s)
		change(p.batches[s.positions[7]:])
		_, err := segmentobject.Verify(t.Context(), storeBytes(t, p.together()), "k.seg", -1)
		require.ErrorIs(t, err, segmentobject.ErrCorrupt, name)
		var corrupt *segmentobject.CorruptError
		require.ErrorAs(t, err, &corrupt)
		if name != "a length" {
			require.Equal(t, s.positions[7], corrupt.Position, name)
		}
	}
}

// batch is one record with a header that a test changes, its checksum made right.
func batch(base cluster.Offset, o recordbatch.Options, change func(b recordbatch.Batch), stamps ...int64) []byte {
	o.BaseOffset = base
	bu := recordbatch.NewBuilder(o)
	for _, ts := range stamps {
		bu.Add(ts, nil, []byte("value"))
	}
	b := bu.Build()
	if change != nil {
		change(b)
		binary.BigEndian.PutUint32(b[17:], objstore.CRC32C(b[21:]))
	}
	return b
}

func sourceOf(base, end cluster.Offset, batches ...[]byte) segmentobject.Source {
	return sample{bytes: bytes.Join(batches, nil), base: base, end: end}.source()
}

// TestWhatTheFooterSaysOfBatches: timestamps, epochs and counts.
func TestWhatTheFooterSaysOfBatches(t *testing.T) {
	none := recordbatch.Options{}
	for _, c := range []struct {
		name     string
		batches  [][]byte
		min, max int64
	}{
		{"one", [][]byte{batch(10, none, nil, 50)}, 50, 50},
		{"first timestamps and maxima", [][]byte{batch(10, none, nil, 50, 20, 90)}, 50, 90},
		{"over two", [][]byte{batch(10, none, nil, 50, 60), batch(12, none, nil, 40, 55)}, 40, 60},
		{"none", [][]byte{batch(10, none, nil, -1)}, -1, -1},
		{"none, then some", [][]byte{batch(10, none, nil, -1), batch(11, none, nil, 30)}, 30, 30},
		{"0", [][]byte{batch(10, none, nil, 0), batch(11, none, nil, 30)}, 0, 30},
		{"append time", [][]byte{batch(10, recordbatch.Options{LogAppendTime: true, AppendTimestamp: 70}, nil, 1, 2)}, 70, 70},
		{"a delete horizon", [][]byte{batch(10, recordbatch.Options{DeleteHorizon: 5}, nil, 60, 80)}, 80, 80},
	} {
		end := cluster.Offset(10)
		for _, b := range c.batches {
			end = recordbatch.Batch(b).NextOffset()
		}
		f := build(t, sourceOf(10, end, c.batches...)).Footer()
		require.Equal(t, [2]int64{c.min, c.max}, [2]int64{f.MinTimestamp, f.MaxTimestamp}, c.name)
		require.EqualValues(t, len(c.batches), f.BatchCount, c.name)
		require.EqualValues(t, end-10, f.RecordCount, c.name)
	}
	for name, change := range map[string]func(b recordbatch.Batch){
		"a negative delta":  func(b recordbatch.Batch) { binary.BigEndian.PutUint32(b[23:], 1<<31) },
		"negative records":  func(b recordbatch.Batch) { binary.BigEndian.PutUint32(b[57:], 1<<31) },
		"format v1":         func(b recordbatch.Batch) { b[16] = 1 },
		"more than is left": func(b recordbatch.Batch) { binary.BigEndian.PutUint32(b[8:], uint32(len(b)-11)) },
		"shorter than a header": func(b recordbatch.Batch) {
			binary.BigEndian.PutUint32(b[8:], 48)
		},
	} {
		src := sourceOf(10, 12, batch(10, none, nil, 5), batch(11, none, change, 5))
		_, err := segmentobject.Build(t.Context(), src)
		requireCorruptAt(t, err, int64(len(batch(10, none, nil, 5))), "the local segment")
		_ = name
	}
	// A batch of no records, as compaction keeps them, is one.
	empty := batch(11, none, func(b recordbatch.Batch) { binary.BigEndian.PutUint32(b[57:], 0) }, 5)
	require.EqualValues(t, 1, build(t, sourceOf(10, 12, batch(10, none, nil, 5), empty)).Footer().RecordCount)
}

// TestSourcesAtTheirBounds: what Build takes and what it refuses.
func TestSourcesAtTheirBounds(t *testing.T) {
	one := batch(0, recordbatch.Options{}, nil, 5)
	for _, c := range []struct {
		name   string
		change func(s *segmentobject.Source)
		ok     bool
	}{
		{"partition 0 from offset 0", func(s *segmentobject.Source) { s.Partition = 0 }, true},
		{"the longest name", func(s *segmentobject.Source) { s.TopicName = strings.Repeat("n", 65535) }, true},
		{"a longer one", func(s *segmentobject.Source) { s.TopicName = strings.Repeat("n", 65536) }, false},
		{"partition -1", func(s *segmentobject.Source) { s.Partition = -1 }, false},
		{"no position", func(s *segmentobject.Source) { s.Position = -1 }, false},
		{"negative bytes", func(s *segmentobject.Source) { s.Bytes = -1 }, false},
		{"no bytes", func(s *segmentobject.Source) { s.Bytes = 0 }, false},
		{"end at base", func(s *segmentobject.Source) { s.End = s.Base }, false},
	} {
		src := sourceOf(0, 1, one)
		c.change(&src)
		o, err := segmentobject.Build(t.Context(), src)
		if !c.ok {
			require.ErrorIs(t, err, segmentobject.ErrSource, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.Equal(t, objstore.PutOptions{
			IfAbsent: true, CRC32C: o.Summary().CRC32C, HasCRC: true, ContentType: "application/vnd.strandline.segment",
		}, o.PutOptions())
		x, err := segmentobject.Verify(t.Context(), storeBytes(t, readBody(t, o)), "k.seg", -1)
		require.NoError(t, err, c.name)
		require.Equal(t, src.TopicName, x.Footer().TopicName)
	}
	// Sparse ones may start and end with a hole, and may not leave their bounds.
	in := batch(5, recordbatch.Options{}, nil, 5, 6)
	for _, c := range []struct {
		base, end cluster.Offset
		ok        bool
	}{{0, 9, true}, {5, 7, true}, {6, 9, false}, {0, 6, false}} {
		src := sourceOf(c.base, c.end, in)
		src.Sparse = true
		_, err := segmentobject.Build(t.Context(), src)
		require.Equal(t, c.ok, err == nil, "[%d, %d): %v", c.base, c.end, err)
	}
}

// TestBatchesAcrossChunks: headers and batches that end before, at and behind the
// pieces in which a segment is read.
func TestBatchesAcrossChunks(t *testing.T) {
	const c = segmentobject.ChunkBytes
	ofBytes := func(base cluster.Offset, n int) []byte {
		for value := n - recordbatch.HeaderBytes; ; value-- {
			b := recordbatch.NewBuilder(recordbatch.Options{BaseOffset: base})
			b.Add(5, nil, make([]byte, value))
			if p := b.Build(); len(p) == n {
				return p
			}
		}
	}
	for _, first := range []int{c - 100, c - 61, c - 60, c - 1, c, c + 1} {
		for _, second := range []int{100, 2*c - first, 2*c - first + 1} {
			src := sourceOf(0, 2, ofBytes(0, first), ofBytes(1, max(second, 100)))
			o := build(t, src)
			_, err := segmentobject.Verify(t.Context(), storeBytes(t, readBody(t, o)), "k.seg", -1)
			require.NoError(t, err, "%d and %d bytes", first, second)
		}
	}
	_, err := segmentobject.Verify(t.Context(), storeBytes(t, readBody(t, build(t, sourceOf(0, 1, ofBytes(0, c+1))))), "k.seg", -1)
	require.NoError(t, err, "a chunk and a byte")
	// Bytes that are no batch, behind the last one, in a sparse segment too.
	for _, sparse := range []bool{false, true} {
		one := ofBytes(0, 100)
		src := sourceOf(0, 1, one, one[:30])
		src.Sparse = sparse
		_, err := segmentobject.Build(t.Context(), src)
		requireCorruptAt(t, err, 100, "the batches end at byte")
	}
}

// TestTimesThatStandStill: the time index then has no entry after the first.
func TestTimesThatStandStill(t *testing.T) {
	var batches [][]byte
	for i := range 60 {
		batches = append(batches, batchOf(cluster.Offset(i), 3, 2000, uint64(i), 500))
	}
	src := sourceOf(0, 60, batches...)
	x, err := segmentobject.Verify(t.Context(), storeBytes(t, readBody(t, build(t, src))), "k.seg", -1)
	require.NoError(t, err)
	require.EqualValues(t, 1, x.Footer().Sections[1].Count)
	require.Greater(t, x.Footer().Sections[0].Count, uint32(5))
	r, ok := x.FindTimestamp(500, 0)
	require.True(t, ok)
	require.Zero(t, r.Start)
}

// TestVerifyEndsWithItsStore: the GET of the batches that fails, and one whose body
// is given back.
func TestVerifyEndsWithItsStore(t *testing.T) {
	o := build(t, makeSample(0, 10, 100, 1).source())
	s := &bodies{Store: storeBytes(t, readBody(t, o))}
	_, err := segmentobject.Verify(t.Context(), s, "k.seg", o.Size())
	require.NoError(t, err)
	require.Zero(t, s.open, "bodies left open")
	s.fail = true
	_, err = segmentobject.Verify(t.Context(), s, "k.seg", o.Size())
	require.ErrorIs(t, err, objstore.ErrUnavailable)
	require.Zero(t, s.open)
}

// bodies counts the bodies that are open, and fails the GETs of batches alone.
type bodies struct {
	objstore.Store
	open int
	fail bool
}

type countedBody struct {
	io.ReadCloser
	s *bodies
}

func (b countedBody) Close() error {
	b.s.open--
	return b.ReadCloser.Close()
}

func (b *bodies) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	info, err := b.Store.Head(ctx, key)
	if err != nil {
		return nil, err
	}
	if b.fail && off == 0 && n < info.Bytes {
		return nil, objstore.ErrUnavailable
	}
	r, err := b.Store.Get(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	b.open++
	return countedBody{r, b}, nil
}

// TestRangeChecksumsWithoutReading: of every range that an upload can ask for, and
// none of those that would need a read.
func TestRangeChecksumsWithoutReading(t *testing.T) {
	const c = segmentobject.ChunkBytes
	s := makeSample(0, 30, 100_000, 7)
	o := build(t, s.source())
	body, n, size := readBody(t, o), int64(len(s.bytes)), o.Size()
	require.Greater(t, n, 2*int64(c))
	for _, off := range []int64{-1, 0, 1, c - 1, c, c + 1, 2 * c, n - 1, n, n + 1, size - 1, size, size + 1} {
		for _, end := range []int64{-1, 0, 1, c - 1, c, c + 1, 2 * c, n - 1, n, n + 1, size - 1, size, size + 1} {
			crc, ok := o.RangeCRC32C(off, end-off)
			want := off >= 0 && end >= off && end <= size && (off%c == 0 || off >= n) && (end%c == 0 || end >= n)
			require.Equal(t, want, ok, "[%d, %d)", off, end)
			if ok {
				require.Equal(t, objstore.CRC32C(body[off:end]), crc, "[%d, %d)", off, end)
			}
		}
	}
	_, err := o.ReadAt(make([]byte, 1), -1)
	require.Error(t, err)
}

// flaky fails at a position, or ends there without saying so.
type flaky struct {
	b   []byte
	at  int64
	err error
}

func (f flaky) ReadAt(p []byte, off int64) (int, error) {
	if n := f.at - off; n < int64(len(p)) {
		return copy(p, f.b[off:max(off, f.at)]), f.err
	}
	return copy(p, f.b[off:]), nil
}

// TestReadsThatFailAreNoCorruption: a segment that cannot be read is told from one
// that is too short, when it is built and when it is uploaded or compared.
func TestReadsThatFailAreNoCorruption(t *testing.T) {
	s := makeSample(0, 40, 100_000, 13)
	broken := errors.New("the disk is broken")
	at := int64(segmentobject.ChunkBytes + 77)
	whole := build(t, s.source())
	x := mustIndex(t, whole)
	for _, c := range []struct {
		name string
		err  error
		want error
	}{{"an error", broken, broken}, {"the end", io.EOF, io.ErrUnexpectedEOF}, {"nothing", nil, io.ErrUnexpectedEOF}} {
		src := s.source()
		src.Batches = flaky{s.bytes, at, c.err}
		_, err := segmentobject.Build(t.Context(), src)
		require.ErrorIs(t, err, c.want, c.name)
		if errors.Is(c.want, broken) {
			require.NotErrorIs(t, err, segmentobject.ErrCorrupt)
			require.ErrorContains(t, err, "at byte 1048576")
		} else {
			requireCorruptAt(t, err, at, "fewer bytes than it should")
		}
		src.Batches = bytes.NewReader(s.bytes)
		o := build(t, src)
		*segmentobject.SourceForTesting(o) = flaky{s.bytes, at, c.err}
		p := make([]byte, segmentobject.ChunkBytes)
		n, err := o.ReadAt(p, 77)
		require.Equal(t, len(p), n, c.name)
		require.NoError(t, err)
		n, err = o.ReadAt(p, 200)
		require.EqualValues(t, at-200, n, c.name)
		require.ErrorIs(t, err, c.want, c.name)

		err = x.VerifyChunksAt(0, flaky{s.bytes, at, c.err}, 0, 2*segmentobject.ChunkBytes)
		require.ErrorIs(t, err, c.want, c.name)
		require.NotErrorIs(t, err, segmentobject.ErrCorrupt)
		require.NoError(t, x.VerifyChunksAt(0, flaky{s.bytes, at, c.err}, 0, segmentobject.ChunkBytes))
	}
	// A reader may say that it ended together with the last bytes.
	require.NoError(t, x.VerifyChunksAt(0, eofReader{s.bytes}, 0, int64(len(s.bytes))))
	store := mem.New()
	_, err := store.Put(context.Background(), "k.seg", whole, objstore.PutOptions{})
	require.NoError(t, err)
	for _, at := range []int64{0, 100, segmentobject.ChunkBytes, segmentobject.ChunkBytes + 5} {
		_, err = segmentobject.Verify(t.Context(), cutStore{store, at}, "k.seg", whole.Size())
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, "cut at %d", at)
		require.NotErrorIs(t, err, segmentobject.ErrCorrupt)
	}
}

type eofReader struct{ b []byte }

func (r eofReader) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, r.b[off:])
	if off+int64(n) == int64(len(r.b)) {
		return n, io.EOF
	}
	return n, nil
}

// cutStore breaks off what starts at 0.
type cutStore struct {
	objstore.Store
	at int64
}

func (c cutStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := c.Store.Get(ctx, key, off, n)
	if err != nil || off > 0 {
		return r, err
	}
	return io.NopCloser(io.LimitReader(r, c.at)), nil
}
