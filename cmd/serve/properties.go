package serve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"
	"github.com/magiconair/properties"

	"strandline/metadata/config"
)

// envPrefix starts the name of an environment variable that sets a key.
const envPrefix = "STRANDLINE_"

// Property is one key that was set, with where.
type Property struct {
	Value  string
	Source string // "--set", "environment NAME", "file NAME"
}

// Sources are the places that configuration comes from, least important first:
// files in order, environment, sets.
type Sources struct {
	Files   []string
	Environ []string // as os.Environ
	Sets    []string // key=value
}

// Load merges the sources. It reads the files and nothing else. Values are
// strings as in a properties file.
func (s Sources) Load() (map[string]Property, error) {
	merged := map[string]Property{}
	for _, name := range s.Files {
		values, err := readFile(name)
		if err != nil {
			return nil, &ExitError{Code: ExitConfig, Err: err}
		}
		for k, v := range values {
			merged[k] = Property{Value: v, Source: "file " + name}
		}
	}
	for name, value := range s.environment() {
		merged[envKey(name)] = Property{Value: value, Source: "environment " + name}
	}
	for _, set := range s.Sets {
		k, v, ok := strings.Cut(set, "=")
		if k = strings.TrimSpace(k); !ok || k == "" {
			return nil, &ExitError{Code: ExitConfig, Err: fmt.Errorf("--set %s: want key=value", set)}
		}
		merged[k] = Property{Value: strings.TrimSpace(v), Source: "--set"}
	}
	return merged, nil
}

// notKeys are environment variables with our prefix that are not keys.
var notKeys = []string{"STRANDLINE_BOOTSTRAP", "STRANDLINE_STEP", "STRANDLINE_STEP_FILE", "STRANDLINE_PLANT", "STRANDLINE_REQUIRE_TOOLS", "STRANDLINE_LONG", "STRANDLINE_SEED"}

// serviceLink matches what Kubernetes tells every container about a service that
// is named strandline.
var serviceLink = regexp.MustCompile(`^STRANDLINE_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func (s Sources) environment() map[string]string {
	env := map[string]string{}
	for _, kv := range s.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(notKeys, name) && !serviceLink.MatchString(name) {
			env[name] = value
		}
	}
	return env
}

// envKey turns STRANDLINE_LOG_DIRS into log.dirs.
func envKey(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", ".")
}

func readFile(name string) (map[string]string, error) {
	switch ext := filepath.Ext(name); ext {
	case ".properties":
		return readProperties(name)
	case ".yaml", ".yml":
		return readYAML(name)
	default:
		return nil, fmt.Errorf("--config %s: want a name that ends in .properties or .yaml", name)
	}
}

func readProperties(name string) (map[string]string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", name, err)
	}
	return p.Map(), nil
}

func readYAML(name string) (map[string]string, error) {
	k := koanf.New(".")
	if err := k.Load(file.Provider(name), yaml.Parser()); err != nil {
		return nil, fmt.Errorf("--config %s: %w", name, err)
	}
	values := map[string]string{}
	for key, v := range k.All() {
		switch v := v.(type) {
		case nil:
		case []any:
			parts := make([]string, len(v))
			for i, e := range v {
				parts[i] = fmt.Sprint(e)
			}
			values[key] = strings.Join(parts, ",")
		default:
			values[key] = fmt.Sprint(v)
		}
	}
	return values, nil
}

// Parse merges the sources and checks every key.
func Parse(s Sources) (config.Broker, []config.Warning, map[string]Property, error) {
	merged, err := s.Load()
	if err != nil {
		return config.Broker{}, nil, nil, err
	}
	flat := map[string]string{}
	for k, p := range merged {
		flat[k] = p.Value
	}
	b, warnings, err := config.ParseBroker(flat)
	if err != nil {
		return b, warnings, merged, &ExitError{Code: ExitConfig, Err: located(err, merged)}
	}
	return b, warnings, merged, nil
}

// located adds where each key was set, as a line of a file or a variable of the
// environment is found by it.
func located(err error, set map[string]Property) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range all.Unwrap() {
			errs = append(errs, located(e, set))
		}
		return errors.Join(errs...)
	}
	var key *config.KeyError
	if errors.As(err, &key) {
		if p, ok := set[key.Key]; ok && p.Source != "--set" {
			return fmt.Errorf("%w (%s)", err, p.Source)
		}
	}
	return err
}
