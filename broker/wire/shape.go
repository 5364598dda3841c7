package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// Bounds on one request, whatever its size (W4).
const (
	// MaxElements bounds the array elements of a request, all levels together.
	MaxElements = 1_000_000
	// MaxTags bounds its tagged fields.
	MaxTags = 20_000
)

// field is one field of a request's shape: enough of the protocol's schema to
// know how many elements a decoder would make, before it makes them.
type field struct {
	kind     fieldKind
	bytes    int // of fixed
	nullable bool
	min, max int16 // versions that have the field
	fields   []field
}

type fieldKind uint8

const (
	fixed   fieldKind = iota
	text              // string
	blob              // bytes
	structs           // array of structs, which end in tags where flexible
	scalars           // array of single values
	one               // nullable struct
)

// shape parses the shapes of the version table. Words are fields: i8 i16 i32
// i64 uuid str bytes; a '?' makes one nullable; '@from-to' limits it to some
// versions; '[ ]' is an array of structs, '( )' an array of values, '{ }' a
// nullable struct.
func shape(text string) []field {
	fields, rest := shapeFields(strings.Fields(text), "")
	if len(rest) > 0 {
		panic("wire: unbalanced shape " + text)
	}
	return fields
}

func shapeFields(words []string, until string) ([]field, []string) {
	var fields []field
	for len(words) > 0 {
		word, versions, _ := strings.Cut(words[0], "@")
		words = words[1:]
		if word == until {
			return fields, append([]string{"@" + versions}, words...)
		}
		f := field{}
		switch word {
		case "[", "(", "{":
			f.kind = map[string]fieldKind{"[": structs, "(": scalars, "{": one}[word]
			f.fields, words = shapeFields(words, map[string]string{"[": "]", "(": ")", "{": "}"}[word])
			versions, words = words[0][1:], words[1:]
		default:
			f.kind, f.bytes, f.nullable = scalarShape(word)
		}
		f.min, f.max = versionBounds(versions)
		fields = append(fields, f)
	}
	return fields, nil
}

func scalarShape(word string) (kind fieldKind, bytes int, nullable bool) {
	word, nullable = strings.CutSuffix(word, "?")
	switch word {
	case "i8":
		return fixed, 1, nullable
	case "i16":
		return fixed, 2, nullable
	case "i32":
		return fixed, 4, nullable
	case "i64":
		return fixed, 8, nullable
	case "uuid":
		return fixed, 16, nullable
	case "str":
		return text, 0, nullable
	case "bytes":
		return blob, 0, nullable
	}
	panic("wire: unknown shape " + word)
}

func versionBounds(s string) (lowest, highest int16) {
	from, to, _ := strings.Cut(s, "-")
	lowest, highest = 0, 1<<15-1
	if n, err := strconv.Atoi(from); err == nil {
		lowest = int16(n)
	}
	if n, err := strconv.Atoi(to); err == nil {
		highest = int16(n)
	}
	return lowest, highest
}

// CheckShape walks over the body of a request and returns ErrMalformed where it
// ends early or announces more elements or tags than are allowed. It allocates
// nothing. A body that passes can be decoded at a cost in proportion to it.
func CheckShape(q *Request) error {
	api, ok := Lookup(q.Key)
	if !ok {
		return fmt.Errorf("%w: key %d", ErrUnsupported, q.Key)
	}
	w := walker{cursor: cursor{b: q.Body}, version: q.Version, flexible: api.IsFlexible(q.Version), left: MaxElements}
	w.fields(api.fields, true)
	if w.bad {
		return fmt.Errorf("%w: body of %s version %d", ErrMalformed, api.Name, q.Version)
	}
	return nil
}

type walker struct {
	cursor
	version  int16
	flexible bool
	left     int // elements that may still come
}

func (w *walker) fields(fields []field, tagged bool) {
	for i := range fields {
		if w.bad {
			return
		}
		f := &fields[i]
		if w.version < f.min || w.version > f.max {
			continue
		}
		switch f.kind {
		case fixed:
			w.take(f.bytes)
		case text:
			w.take(w.length(true))
		case blob:
			w.take(w.length(false))
		case structs, scalars:
			w.array(f)
		case one:
			if v := w.take(1); v != nil && int8(v[0]) >= 0 {
				w.fields(f.fields, true)
			}
		}
	}
	if tagged && w.flexible {
		w.skipTags()
	}
}

func (w *walker) array(f *field) {
	n := w.length(false)
	if w.left -= n; w.left < 0 || n > len(w.b) {
		w.bad, w.b = true, nil
		return
	}
	for ; n > 0 && !w.bad; n-- {
		w.fields(f.fields, f.kind == structs)
	}
}

// length reads a length of either encoding; null is 0.
func (w *walker) length(short bool) int {
	n := 0
	switch {
	case w.flexible:
		n = w.uvarint() - 1
	case short:
		n = int(w.int16())
	default:
		n = int(w.int32())
	}
	return max(n, 0)
}
