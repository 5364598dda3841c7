package archrules

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "strandline/"

// anyone may be imported by every package of the three planes: values only.
var anyone = []string{"metadata/cluster", "metadata/config"}

// table says which of our packages each package may import, besides anyone and
// the packages in its own folder's subfolders. A package that is not listed
// fails the test: it gets a row before it gets a second user.
var table = map[string][]string{
	"metadata/disk":       {"metadata/background"},
	"metadata/background": {},
	"metadata/cluster":    {},
	"metadata/config":     {},
	"metadata/request":    {},
	"metadata/varint":     {},
	"metadata/image":      {"metadata/command", "metadata/request", "metadata/varint"},
	"metadata/catalog":    {"metadata/request", "metadata/varint"},
	"metadata/command":    {"metadata/catalog", "metadata/request", "metadata/varint"},
	"metadata/controller": {"metadata/image", "metadata/command", "metadata/catalog", "metadata/request"},
	"metadata/store":      {"metadata/background", "metadata/disk"},
	"metadata/state":      {"metadata/image", "metadata/request", "metadata/command", "metadata/catalog", "metadata/store", "metadata/disk"},
	"metadata/quorum":     {"metadata/store", "metadata/disk"},
	"metadata/watch":      {"metadata/image", "metadata/command", "metadata/catalog", "metadata/request"},
	"metadata/node":       {"metadata/..."},

	"broker/recordbatch":    {},
	"broker/leaderepoch":    {},
	"broker/producerstate":  {"broker/recordbatch"},
	"broker/segment":        {"metadata/disk", "broker/recordbatch", "broker/leaderepoch", "broker/producerstate"},
	"broker/locallog":       {"metadata/disk", "broker/segment", "broker/recordbatch", "broker/producerstate", "broker/leaderepoch"},
	"broker/partition":      {"metadata/disk", "metadata/image", "broker/locallog", "broker/segment", "broker/recordbatch", "broker/producerstate", "broker/leaderepoch"},
	"broker/keyindex":       {"metadata/background", "metadata/disk", "metadata/store", "broker/recordbatch"},
	"broker/cleaner":        {"metadata/background", "metadata/disk", "broker/locallog", "broker/segment", "broker/recordbatch", "broker/producerstate", "broker/keyindex"},
	"broker/replicas":       {"metadata/background", "metadata/disk", "metadata/image", "metadata/watch", "broker/locallog", "broker/segment", "broker/producerstate", "broker/partition", "broker/replication", "broker/cleaner", "broker/keyindex", "metadata/store"},
	"broker/coordinator":    {"metadata/disk", "metadata/store", "broker/partition", "broker/recordbatch"},
	"broker/fetchsession":   {},
	"broker/group":          {},
	"broker/group/consumer": {"broker/group", "broker/group/classic"},
	"broker/groups":         {"broker/group", "broker/coordinator", "broker/partition", "metadata/image"},
	"broker/lifecycle":      {"metadata/watch", "metadata/image", "metadata/request", "broker/peer"},
	"broker/wire":           {"metadata/disk"},
	"broker/security":       {"metadata/image"},
	"broker/api":            {"metadata/disk", "metadata/image", "metadata/request", "broker/wire", "broker/recordbatch", "broker/security", "broker/partition", "broker/producerstate", "broker/fetchsession", "broker/group", "metadata/watch"},
	"broker/server":         {"metadata/disk", "broker/wire", "broker/api", "broker/security"},
	"broker/admin":          {},

	"tiering/objstore":      {"metadata/disk"},
	"tiering/segmentobject": {"metadata/request", "metadata/disk", "tiering/objstore", "broker/recordbatch", "broker/leaderepoch", "broker/producerstate", "broker/segment"},
	"tiering/manifest":      {"metadata/request", "metadata/catalog", "metadata/image", "tiering/objstore", "broker/leaderepoch"},
	"tiering/rangecache":    {"metadata/disk"},
	"tiering/remotelog":     archive,
	"tiering/archive":       archive,
	"tiering/sweep":         archive,
}

var archive = []string{
	"metadata/disk", "metadata/image", "metadata/catalog", "metadata/watch", "metadata/request",
	"broker/partition", "broker/segment", "broker/locallog", "broker/recordbatch", "broker/leaderepoch", "broker/producerstate",
	"tiering/objstore", "tiering/segmentobject", "tiering/rangecache", "tiering/manifest",
}

// engines names the only package that may import a third-party module.
var engines = map[string]string{
	"github.com/cockroachdb/pebble": "metadata/store",
	"github.com/hashicorp/raft":     "metadata/quorum",
	"github.com/aws/":               "tiering/objstore",
	"github.com/minio/":             "tiering/objstore",
}

// sourceFile is one parsed file of ours.
type sourceFile struct {
	pkg, name string
	imports   []string
}

func sources(t *testing.T) []sourceFile {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	var files []sourceFile
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || rel == "data" || rel == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		s := sourceFile{pkg: filepath.ToSlash(filepath.Dir(rel)), name: filepath.Base(rel)}
		for _, i := range f.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			s.imports = append(s.imports, p)
		}
		files = append(files, s)
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	return files
}

func allowed(pkg, imported string) bool {
	if slices.Contains(anyone, imported) || strings.HasPrefix(imported, pkg+"/") {
		return true
	}
	return slices.ContainsFunc(table[row(pkg)], func(a string) bool {
		return a == imported || strings.HasPrefix(imported, a+"/") ||
			strings.HasSuffix(a, "/...") && strings.HasPrefix(imported, strings.TrimSuffix(a, "..."))
	})
}

// row is the package of the table that pkg is, or lies under.
func row(pkg string) string {
	for p := pkg; p != "."; p = filepath.ToSlash(filepath.Dir(p)) {
		if _, ok := table[p]; ok {
			return p
		}
	}
	return ""
}

func free(pkg string) bool {
	return pkg == "cmd" || strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, "integration/")
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, f := range sources(t) {
		if strings.HasSuffix(f.name, "_test.go") || free(f.pkg) {
			continue
		}
		if row(f.pkg) == "" {
			t.Errorf("%s has no row in the import table", f.pkg)
			continue
		}
		for _, i := range f.imports {
			ours, ok := strings.CutPrefix(i, module)
			if !ok {
				continue
			}
			within := strings.HasPrefix(f.pkg, row(f.pkg)+"/") && (ours == row(f.pkg) || strings.HasPrefix(ours, row(f.pkg)+"/"))
			if !within && !allowed(f.pkg, ours) {
				t.Errorf("%s/%s imports %s, which the table does not allow", f.pkg, f.name, ours)
			}
		}
	}
}

func TestPlanesImportOneWay(t *testing.T) {
	rank := map[string]int{"metadata": 0, "broker": 1, "tiering": 2, "cmd": 3, "integration": 4}
	for _, f := range sources(t) {
		from, _, _ := strings.Cut(f.pkg, "/")
		if strings.HasSuffix(f.name, "_test.go") {
			continue
		}
		for _, i := range f.imports {
			ours, ok := strings.CutPrefix(i, module)
			if !ok {
				continue
			}
			to, _, _ := strings.Cut(ours, "/")
			if rank[to] > rank[from] || to == "integration" && from != "integration" {
				t.Errorf("%s/%s imports %s: planes import one way", f.pkg, f.name, ours)
			}
		}
	}
}

func TestEnginesStayBehindTheirPort(t *testing.T) {
	for _, f := range sources(t) {
		if strings.HasSuffix(f.name, "_test.go") || free(f.pkg) {
			continue
		}
		for _, i := range f.imports {
			for module, owner := range engines {
				if strings.HasPrefix(i, module) && f.pkg != owner && !strings.HasPrefix(f.pkg, owner+"/") {
					t.Errorf("%s/%s imports %s: only %s may", f.pkg, f.name, i, owner)
				}
			}
		}
	}
}
