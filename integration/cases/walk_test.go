package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/integration/kit"
)

// walkRow is one API of the walk. Together, the scenarios' requests give every
// field that a version has another value than its default.
type walkRow struct {
	scenarios []scenario
	// since names fields that our encoder would write into versions which do not
	// have them yet, with the first that has.
	since map[string]int16
}

// scenario asks one API the same in every version.
type scenario struct {
	name     string
	from, to int16 // the versions that can ask this; to 0: the newest too
	// ask builds the request; fields that the version lacks are left out by the
	// encoding. mean, if any, takes away what versions may say differently.
	ask  func(w *world, version int16) kmsg.Request
	mean func(w *world, resp kmsg.Response)
	// after, if any, is what the request has brought about.
	after func(w *world) any
	// alone: old versions mean something else; only the reference's answer to
	// the same version counts.
	alone bool
}

// world is what one request of one version finds: names of its own, which read
// the same in every world.
type world struct {
	t       *testing.T
	c       *kit.Raw
	addr    string
	cluster string
	names   []string
	ids     [][16]byte
}

// name is a fresh name. It reads as name-0, name-1, ... in what is compared.
func (w *world) name() string {
	w.names, w.ids = append(w.names, fresh("walk")), append(w.ids, [16]byte{})
	return w.names[len(w.names)-1]
}

// topic creates a topic with two partitions, and three records in partition 1.
func (w *world) topic(configs ...string) (string, [16]byte) {
	w.t.Helper()
	name, id := create(w.t, w.c, 2, append(configs, "retention.ms=-1")...) // the records are old
	w.names, w.ids = append(w.names, name), append(w.ids, id)
	same(w.t, nil, send(w.c, 9, name, id, 1, stamped(0, 1_700_000_000_100, 1_700_000_000_300, 1_700_000_000_200)).ErrorCode)
	return name, id
}

// answer sends a scenario's request in a version and returns its meaning, or an
// error where the broker has closed the connection.
func (s scenario) answer(t *testing.T, addr, cluster string, version int16) (resp kmsg.Response, after any, sent kmsg.Request, err error) {
	w := &world{t: t, c: kit.Dial(t, addr), addr: addr, cluster: cluster}
	sent = s.ask(w, version)
	sent.SetVersion(version)
	w.c.Send(sent)
	resp, err = w.c.Receive(sent)
	if err != nil {
		return nil, nil, sent, err
	}
	w.normalise(reflect.ValueOf(resp).Elem())
	if s.mean != nil {
		s.mean(w, resp)
	}
	if s.after != nil {
		after = plain(s.after(w))
	}
	return resp, w.rename(after), sent, nil
}

// TestWalk asks every advertised API, in every advertised version, questions
// whose fields are not the defaults, and compares each answer with the next
// version's on the fields that both have, so in the end with the newest; and
// with the answer that Apache Kafka gave to the same version.
//
// With STRANDLINE_REFERENCE=host:port and STRANDLINE_RECORD=1 it writes down the
// reference's answers.
func TestWalk(t *testing.T) {
	addr := os.Getenv("STRANDLINE_REFERENCE")
	if addr == "" {
		addr = kit.Start(t, walked).Addr
	}
	walkOver(t, addr, false)
}

// walked is what the walk has set, and the reference too: groups do not wait for
// more members.
var walked = map[string]string{"group.initial.rebalance.delay.ms": "0"}

// TestWalkForOldClients is the same with the versions that only brokers for 0.8
// to 0.10 clients serve.
func TestWalkForOldClients(t *testing.T) {
	set := maps.Clone(walked)
	set["compat.legacy.clients"] = "true"
	s := own(t, set)
	walkOver(t, s.Addr, true)
}

const walkFile = "testdata/walk-kafka-4.4.0.json"

func walkOver(t *testing.T, addr string, legacy bool) {
	recorded := map[string]any{}
	if b, err := os.ReadFile(walkFile); err == nil {
		require.NoError(t, json.Unmarshal(b, &recorded))
	}
	reached := map[string]any{}
	c := kit.Dial(t, addr)
	cluster := ask[*kmsg.DescribeClusterResponse](c, &kmsg.DescribeClusterRequest{Version: 1, EndpointType: 1}).ClusterID
	kit.Eventually(t, 10*time.Second, "there are producer ids", func() bool {
		return ask[*kmsg.InitProducerIDResponse](c, initProducer(nil, -1, -1)(nil, 0)).ErrorCode == 0
	})
	for _, api := range apiVersions(c, 3).ApiKeys {
		row, ok := walk[api.ApiKey]
		if !ok {
			if !reference() {
				t.Errorf("%s (%d) is advertised and has no row in the walk", kmsg.NameForKey(api.ApiKey), api.ApiKey)
			}
			continue
		}
		low := api.MinVersion
		if api.ApiKey == 0 && !legacy {
			low = 3 // 0 to 2 are advertised for the sake of old clients, and refused
		}
		high := min(api.MaxVersion, kmsg.RequestForKey(api.ApiKey).MaxVersion())
		t.Run(kmsg.NameForKey(api.ApiKey), func(t *testing.T) {
			row.check(t, addr, cluster, api.ApiKey, low, high, reached, recorded)
		})
	}
	if !reference() || t.Failed() || os.Getenv("STRANDLINE_RECORD") != "1" {
		return
	}
	b, err := json.Marshal(reached)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, os.WriteFile(walkFile, append(bytes.ReplaceAll(b, []byte(`},"`), []byte("},\n\"")), '\n'), 0o644))
}

func (row walkRow) check(t *testing.T, addr, cluster string, key, low, high int16, reached, recorded map[string]any) {
	touched := map[int16]map[string]bool{}
	for version := low; version <= high; version++ {
		touched[version] = map[string]bool{}
	}
	for _, s := range row.scenarios {
		t.Run(s.name, func(t *testing.T) {
			var newer kmsg.Response
			var newerAfter any
			last := high
			if s.to != 0 {
				last = min(s.to, high)
			}
			for version := last; version >= max(s.from, low); version-- {
				resp, after, sent, err := s.answer(t, addr, cluster, version)
				id := fmt.Sprintf("%s %d %s", kmsg.NameForKey(key), version, s.name)
				if err != nil {
					reached[id] = "closed"
					if !reference() {
						require.NoError(t, err, "version %d", version)
					}
					continue
				}
				maps.Copy(touched[version], leaves(again(sent, version)))
				full := map[string]any{"answer": plain(projected(resp, version))}
				if after != nil {
					full["after"] = after
				}
				reached[id] = full
				if newer != nil && !s.alone {
					require.Equal(t, plain(projected(newer, version+1, version)), plain(projected(resp, version, version+1)), "version %d beside %d", version, version+1)
					require.Equal(t, newerAfter, after, "what version %d did beside %d", version, version+1)
				}
				newer, newerAfter = resp, after
				asRecorded(t, id, full, recorded)
			}
		})
	}
	for version := low; version <= high; version++ {
		req := kmsg.RequestForKey(key)
		fillIn(reflect.ValueOf(req).Elem())
		for path := range leaves(again(req, version)) {
			if !touched[version][path] && version >= row.since[path] {
				t.Errorf("version %d: no scenario sets %s", version, path)
			}
		}
	}
}

// asRecorded requires the reference's answer, or a difference that is listed;
// a listed one that is none is a mistake.
func asRecorded(t *testing.T, id string, got map[string]any, recorded map[string]any) {
	if reference() {
		return
	}
	want, ok := recorded[id]
	if !ok {
		return // a version that the reference does not serve
	}
	why := ""
	for pattern, reason := range walkDiffers {
		if regexp.MustCompile("^(" + pattern + ")$").MatchString(id) {
			why = reason
		}
	}
	equal := reflect.DeepEqual(wordless(want), wordless(plain(got)))
	if why == "" && !equal {
		assert.Equal(t, wordless(want), wordless(plain(got)), "beside Apache Kafka: %s", id)
	}
	if why != "" && equal {
		t.Errorf("%s is listed as different from Apache Kafka (%s), and is the same", id, why)
	}
}

// wordless drops texts that explain a code: whether there is one differs. A list
// without elements is as good as none.
func wordless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			if k != "ErrorMessage" {
				out[k] = wordless(x)
			}
		}
		return out
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = wordless(x)
		}
		return out
	}
	return v
}

// again is a request as the broker reads it in a version.
func again(req kmsg.Request, version int16) kmsg.Request {
	req.SetVersion(version)
	out := kmsg.RequestForKey(req.Key())
	out.SetVersion(version)
	if err := out.ReadFrom(req.AppendTo(nil)); err != nil {
		panic(fmt.Sprintf("%T %d: %v", req, version, err))
	}
	return out
}

// projected is an answer with the fields that all versions have.
func projected(resp kmsg.Response, versions ...int16) kmsg.Response {
	for _, version := range versions {
		resp.SetVersion(version)
		out := kmsg.ResponseForKey(resp.Key())
		out.SetVersion(version)
		if err := out.ReadFrom(resp.AppendTo(nil)); err != nil {
			panic(fmt.Sprintf("%T %d: %v", resp, version, err))
		}
		resp = out
	}
	return resp
}

// plain is a value as JSON knows it, lists of structs in one order.
func plain(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return ordered(out)
}

func ordered(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "Version")
		delete(v, "UnknownTags")
		for k, x := range v {
			v[k] = ordered(x)
		}
	case []any:
		for i, x := range v {
			v[i] = ordered(x)
		}
		if len(v) > 0 {
			if _, ok := v[0].(map[string]any); ok {
				slices.SortFunc(v, func(a, b any) int {
					x, _ := json.Marshal(a)
					y, _ := json.Marshal(b)
					return strings.Compare(string(x), string(y))
				})
			}
		}
	}
	return v
}

var skipped = map[string]bool{"Version": true, "UnknownTags": true}

// fillIn gives every field a value that is not its default.
func fillIn(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if !skipped[v.Type().Field(i).Name] {
				fillIn(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillIn(v.Index(0))
	case reflect.Array:
		fillIn(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(v.Elem())
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(3)
	default:
		v.SetInt(3)
	}
}

// leaves are the paths of a request's fields that are neither 0, -1, empty nor
// null.
func leaves(req kmsg.Request) map[string]bool {
	out := map[string]bool{}
	var visit func(path string, v reflect.Value)
	visit = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; !skipped[name] {
					visit(strings.TrimPrefix(path+"."+name, "."), v.Field(i))
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				visit(path, v.Index(i))
			}
		case reflect.Pointer:
			if !v.IsNil() {
				visit(path, v.Elem())
			}
		default:
			if !v.IsZero() && !(v.CanInt() && v.Int() == -1) {
				out[path] = true
			}
		}
	}
	visit("", reflect.ValueOf(req).Elem())
	return out
}

// normalise writes the same in place of what differs from world to world:
// names, ids, addresses, texts, and record batches as their records.
func (w *world) normalise(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		w.nameAndID(v)
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			switch {
			case skipped[name]:
			case name == "ThrottleMillis" || name == "Port":
				f.SetZero()
			case name == "ErrorMessage" || name == "Documentation":
				if !f.IsNil() && f.Elem().String() != "" {
					f.Set(reflect.ValueOf(kmsg.StringPtr("said")))
				}
			case name == "RecordBatches":
				f.SetBytes(fmt.Append(nil, readable(w.t, f.Bytes())))
			default:
				w.normalise(f)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			w.normalise(v.Index(i))
		}
	case reflect.Array:
		if id, ok := v.Interface().([16]byte); ok {
			v.Set(reflect.ValueOf(w.sameID(id)))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			w.normalise(v.Elem())
		}
	case reflect.String:
		v.SetString(w.sameText(v.String()))
	}
}

// nameAndID gives a struct with a topic's name and id both, where a version says
// one of them.
func (w *world) nameAndID(v reflect.Value) {
	name, id := v.FieldByName("Topic"), v.FieldByName("TopicID")
	if !name.IsValid() || !id.IsValid() || id.Type() != reflect.TypeFor[[16]byte]() {
		return
	}
	text := name
	if name.Kind() == reflect.Pointer {
		if name.IsNil() {
			return
		}
		text = name.Elem()
	}
	for i, n := range w.names {
		if w.ids[i] == [16]byte{} {
			continue
		}
		switch {
		case text.String() == n && id.IsZero():
			id.Set(reflect.ValueOf(w.ids[i]))
		case text.String() == "" && id.Interface() == w.ids[i]:
			text.SetString(n)
		}
	}
}

func (w *world) sameID(id [16]byte) [16]byte {
	if id == [16]byte{} {
		return id
	}
	for i, known := range w.ids {
		if id == known {
			return [16]byte{1, byte(i)}
		}
	}
	return [16]byte{2}
}

// uuids end the names of members.
var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func (w *world) sameText(s string) string {
	if s == w.cluster {
		return "cluster"
	}
	host, _, _ := strings.Cut(w.addr, ":")
	if s == host || s == w.addr {
		return "host"
	}
	for i, n := range w.names {
		s = strings.ReplaceAll(s, n, fmt.Sprint("name-", i))
	}
	return uuids.ReplaceAllString(s, "uuid")
}

func (w *world) rename(v any) any {
	switch v := v.(type) {
	case string:
		return w.sameText(v)
	case map[string]any:
		out := map[string]any{}
		for k, x := range v {
			out[w.sameText(k)] = w.rename(x)
		}
		return out
	case []any:
		for i := range v {
			v[i] = w.rename(v[i])
		}
	}
	return v
}

// await polls for what a broker does only after its answer.
func (w *world) await(done func() bool) bool {
	w.t.Helper()
	if done() {
		return true
	}
	late := time.After(5 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if done() {
				return true
			}
		case <-late:
			return false
		}
	}
}
