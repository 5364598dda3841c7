package config

import (
	"net/url"
	"path/filepath"
	"strings"
)

// apart refuses log directories that lie in each other, and a directory tier in a
// log directory: the files of the one would be taken for the other's. Names are
// compared, not what links point to: nothing is touched.
func apart(b *Broker, _ values) error {
	for i, inner := range b.LogDirs {
		for j, outer := range b.LogDirs {
			if i != j && inside(inner, outer) {
				return keyErr("log.dirs", "log.dirs: %s lies in %s: log directories must lie beside each other", inner, outer)
			}
		}
	}
	tier, ok := strings.CutPrefix(b.Store.URL, "file://")
	if !ok {
		return nil
	}
	if plain, err := url.PathUnescape(tier); err == nil {
		tier = plain
	}
	for _, dir := range b.LogDirs {
		if inside(tier, dir) {
			return keyErr("remote.store.url", "remote.store.url=%s lies in the log directory %s: choose a directory beside it", b.Store.URL, dir)
		}
	}
	return nil
}

// inside says whether a directory is another one or lies in it.
func inside(inner, outer string) bool {
	in, err1 := filepath.Abs(inner)
	out, err2 := filepath.Abs(outer)
	if err1 != nil || err2 != nil {
		return false
	}
	rel, err := filepath.Rel(out, in)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
