package wire

import "sync"

// classBytes are the capacities of pooled buffers. The larger ones leave room
// for the headers around a power-of-two batch, so that a 1 MiB batch does not
// take a 2 MiB buffer.
var classBytes = [...]int{
	512, 4 << 10, 18 << 10, 68 << 10, 264 << 10, 1<<20 + 64<<10, 2<<20 + 64<<10, 4<<20 + 64<<10, 8<<20 + 64<<10, 16<<20 + 64<<10,
}

var pools [len(classBytes)]sync.Pool

// Buffer is a byte slice from a size-classed pool. B may be appended to and
// resliced; Free gives the memory back, whatever it has become.
type Buffer struct{ B []byte }

// GetBuffer returns a buffer of length zero that holds at least n bytes without
// growing. Sizes beyond the largest class are allocated and not pooled.
func GetBuffer(n int) *Buffer {
	for c, bytes := range classBytes {
		if n > bytes {
			continue
		}
		if b, ok := pools[c].Get().(*Buffer); ok {
			b.B = b.B[:0]
			return b
		}
		return &Buffer{B: make([]byte, 0, bytes)}
	}
	return &Buffer{B: make([]byte, 0, n)}
}

// Free returns the buffer to its pool. The caller keeps no view of it.
func (b *Buffer) Free() {
	n := cap(b.B)
	if n > 2*classBytes[len(classBytes)-1] {
		return
	}
	for c := len(classBytes) - 1; c >= 0; c-- {
		if n >= classBytes[c] {
			pools[c].Put(b)
			return
		}
	}
}
