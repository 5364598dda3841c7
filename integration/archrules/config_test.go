package archrules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/config"
)

// usedWhileParsing are the keys that package config itself makes use of: they
// decide about other values, or about what is refused.
var usedWhileParsing = map[string]string{
	"process.roles":                             "a node without the role controller must name the voters",
	"controller.listener.names":                 "these listeners are not advertised",
	"remote.store.driver":                       "only one is built in",
	"remote.log.delete.on.disable":              "whether remote.storage.enable may be turned off",
	"group.consumer.session.timeout.ms":         "config.EffectiveGroup gives it to groups without a value of their own",
	"group.consumer.min.session.timeout.ms":     "it bounds the keys of one group",
	"group.consumer.max.session.timeout.ms":     "it bounds the keys of one group",
	"group.consumer.heartbeat.interval.ms":      "config.EffectiveGroup gives it to groups without a value of their own",
	"group.consumer.min.heartbeat.interval.ms":  "it bounds the keys of one group",
	"group.consumer.max.heartbeat.interval.ms":  "it bounds the keys of one group",
	"group.consumer.assignment.interval.ms":     "config.EffectiveGroup gives it to groups without a value of their own",
	"group.consumer.min.assignment.interval.ms": "it bounds the keys of one group",
	"group.consumer.max.assignment.interval.ms": "it bounds the keys of one group",
}

// candidates are values to try until one is allowed and makes a difference.
func candidates(k config.Key) []string {
	list := []string{"true", "false"}
	if n, err := strconv.ParseInt(k.Default, 10, 64); err == nil {
		list = append(list, strconv.FormatInt(n+1, 10), strconv.FormatInt(n-1, 10))
	}
	return append(list, "0.25", "7", "4096", "2097152", "LogAppendTime", "gzip", "compact", "json", "debug", "md5", "minio",
		"upgrade", "classic", "range", "PLAINTEXT://localhost:1", "http://localhost:1", "1@localhost:1", "PLAINTEXT:PLAINTEXT", "file:///x", "x")
}

// base is what the other keys need to be of interest.
var base = map[string]string{"remote.store.access.key.id": "a", "remote.store.secret.access.key": "b"}

// fieldsOf lists the typed values that a key decides about: names of fields of
// config.Broker, with Store., Cache. and Groups. in front of those of its parts,
// or of config.Topic.
func fieldsOf(k config.Key) (broker, topic map[string]bool) {
	parse := func(extra string) (config.Broker, bool) {
		props := maps.Clone(base)
		if extra != "" {
			props[k.Name] = extra
		}
		b, _, err := config.ParseBroker(props)
		return b, err == nil
	}
	layers := func(v string) config.Layers {
		set := map[string]string{k.Name: v}
		if k.Scope == config.TopicScope {
			return config.Layers{Topic: set, TieredByDefault: true}
		}
		return config.Layers{Static: set, TieredByDefault: true}
	}
	broker, topic = map[string]bool{}, map[string]bool{}
	plain, _ := parse("")
	plainTopic := config.EffectiveTopic(config.Layers{TieredByDefault: true})
	for _, v := range candidates(k) {
		if k.Scope == config.BrokerScope {
			b, ok := parse(v)
			if !ok {
				continue
			}
			differences(broker, "", reflect.ValueOf(plain), reflect.ValueOf(b))
		}
		differences(topic, "", reflect.ValueOf(plainTopic), reflect.ValueOf(config.EffectiveTopic(layers(v))))
	}
	delete(broker, "Static")
	return broker, topic
}

func differences(found map[string]bool, prefix string, a, b reflect.Value) {
	for i := range a.NumField() {
		name := prefix + a.Type().Field(i).Name
		switch {
		case a.Field(i).Kind() == reflect.Struct:
			differences(found, name+".", a.Field(i), b.Field(i))
		case !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()):
			found[name] = true
		}
	}
}

// readFields are the fields that code outside package config reads, by the
// names that variables of config.Broker and its parts have everywhere.
func readFields(t *testing.T) (broker, topic map[string]bool) {
	t.Helper()
	broker, topic = map[string]bool{}, map[string]bool{}
	for _, f := range sources(t) {
		if strings.HasSuffix(f.name, "_test.go") || f.pkg == "metadata/config" || strings.HasPrefix(f.pkg, "integration/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", f.pkg, f.name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			topic[s.Sel.Name] = true
			of := ""
			switch x := s.X.(type) {
			case *ast.Ident:
				of = x.Name
			case *ast.SelectorExpr:
				of = x.Sel.Name
			}
			switch of {
			case "b", "broker", "Broker":
				broker[s.Sel.Name] = true
			case "s", "Store":
				broker["Store."+s.Sel.Name] = true
			case "Cache":
				broker["Cache."+s.Sel.Name] = true
			case "Cleaner", "cleaner":
				broker["Cleaner."+s.Sel.Name] = true
			case "OffsetsTopic":
				broker["OffsetsTopic."+s.Sel.Name] = true
			case "Groups", "c":
				broker["Groups."+s.Sel.Name] = true
			}
			return true
		})
	}
	return broker, topic
}

// TestKeysWithAnEffectAreRead holds what the reference says against the code: a
// key that nothing reads is one that says why it is ignored.
func TestKeysWithAnEffectAreRead(t *testing.T) {
	readBroker, readTopic := readFields(t)
	anyOf := func(fields, read map[string]bool) bool {
		for f := range fields {
			if read[f] {
				return true
			}
		}
		return false
	}
	for _, keys := range [][]config.Key{config.TopicKeys(), config.BrokerKeys()} {
		for _, k := range keys {
			if k.Effect != config.Effective || usedWhileParsing[k.Name] != "" {
				continue
			}
			broker, topic := fieldsOf(k)
			switch {
			case len(broker)+len(topic) == 0:
				t.Errorf("%s: no value of it makes a difference to config.Broker or config.Topic", k.Name)
			case !anyOf(broker, readBroker) && !anyOf(topic, readTopic):
				t.Errorf("%s: nothing reads %v %v: use it, or say with ignored(...) why it has no effect", k.Name, broker, topic)
			}
		}
	}
}
