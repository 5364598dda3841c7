package objstore

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of keys: what S3 and ordinary file systems both accept.
const (
	MaxKeyBytes       = 1024
	MaxComponentBytes = 200
	// ReservedPrefix starts the names that drivers keep for themselves; no
	// component of a key starts with it.
	ReservedPrefix = ".strandline-"
)

// ValidateKey reports, as ErrInvalidKey, why a key would not work in every
// driver. Keys are slash-separated components; none may be empty, "." or "..".
// A key must not be a folder of another one (a and a/b).
func ValidateKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty", ErrInvalidKey)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidKey, len(key), MaxKeyBytes)
	case !utf8.ValidString(key):
		return fmt.Errorf("%w: %q is not UTF-8", ErrInvalidKey, key)
	}
	for c := range strings.SplitSeq(key, "/") {
		switch {
		case c == "":
			return fmt.Errorf("%w: %q has an empty component", ErrInvalidKey, key)
		case c == "." || c == "..":
			return fmt.Errorf("%w: %q has a component %q", ErrInvalidKey, key, c)
		case len(c) > MaxComponentBytes:
			return fmt.Errorf("%w: %q has a component of %d bytes, at most %d", ErrInvalidKey, key, len(c), MaxComponentBytes)
		case strings.HasPrefix(c, ReservedPrefix):
			return fmt.Errorf("%w: %q has a reserved component", ErrInvalidKey, key)
		}
	}
	for _, r := range key {
		if r < ' ' || r == 0x7f || r == '\\' {
			return fmt.Errorf("%w: %q has the character %q", ErrInvalidKey, key, r)
		}
	}
	return nil
}
