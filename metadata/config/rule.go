package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rule is a bound on the values of a key. why is Kafka's sentence about a value
// that breaks it, "" for a good one. The value is an int64, float64, string or
// []string.
type rule interface {
	why(key string, v any) string
}

// within bounds a number; math.MaxInt64 as max is no bound.
type within struct{ min, max int64 }

func (w within) why(_ string, v any) string {
	var f float64
	switch v := v.(type) {
	case int64:
		if v < w.min {
			return fmt.Sprintf("Value must be at least %d", w.min)
		}
		if v > w.max {
			return fmt.Sprintf("Value must be no more than %d", w.max)
		}
		return ""
	case float64:
		f = v
	}
	switch {
	case math.IsNaN(f), f < float64(w.min):
		return fmt.Sprintf("Value must be at least %d", w.min)
	case w.max != math.MaxInt64 && f > float64(w.max):
		return fmt.Sprintf("Value must be no more than %d", w.max)
	}
	return ""
}

// gzipLevel is 1 to 9, or -1 for the codec's own default.
type gzipLevel struct{}

func (gzipLevel) why(_ string, v any) string {
	if n := v.(int64); n != -1 && (n < 1 || n > 9) {
		return "Value must be between 1 and 9 or equal to -1"
	}
	return ""
}

// oneOf lists the words that a string, or each element of a list, may be.
type oneOf []string

func (o oneOf) why(_ string, v any) string {
	words, ok := v.([]string)
	if s, single := v.(string); single {
		words, ok = []string{s}, true
	}
	for _, w := range words {
		if ok && !slices.Contains(o, w) {
			return "String must be one of: " + strings.Join(o, ", ")
		}
	}
	return ""
}

// throttled is a list of partition:broker, or * for all of them.
type throttled struct{}

var throttledReplica = regexp.MustCompile(`^[0-9]+:[0-9]+$`)

func (throttled) why(key string, v any) string {
	list := v.([]string)
	if len(list) == 1 && strings.TrimSpace(list[0]) == "*" {
		return ""
	}
	for _, e := range list {
		if !throttledReplica.MatchString(strings.TrimSpace(e)) {
			return key + " must be the literal '*' or a list of replicas in the following format: " +
				"[partitionId]:[brokerId],[partitionId]:[brokerId],..."
		}
	}
	return ""
}

// notEmpty refuses the empty string and the empty list.
type notEmpty struct{}

func (notEmpty) why(_ string, v any) string {
	switch v := v.(type) {
	case string:
		if v == "" {
			return "String must be non-empty"
		}
	case []string:
		if len(v) == 0 {
			return "must not be empty"
		}
	}
	return ""
}

// parse reads a value of a key: its canonical form and the typed value (bool,
// int64, float64, string or []string). The message is Kafka's.
func (k Key) parse(raw string) (canonical string, v any, err error) {
	trimmed := strings.TrimSpace(raw)
	bad := func(why string) error {
		return keyErr(k.Name, "Invalid value %s for configuration %s: %s", raw, k.Name, why)
	}
	switch k.Type {
	case Bool:
		switch strings.ToLower(trimmed) {
		case "true":
			canonical, v = "true", true
		case "false":
			canonical, v = "false", false
		default:
			return "", nil, bad("Expected value to be either true or false")
		}
	case Int, Long, Short:
		bits := map[Type]int{Int: 32, Long: 64, Short: 16}[k.Type]
		n, err := strconv.ParseInt(trimmed, 10, bits)
		if err != nil {
			return "", nil, bad("Not a number of type " + k.Type.String())
		}
		canonical, v = strconv.FormatInt(n, 10), n
	case Double:
		f, err := strconv.ParseFloat(trimmed, 64)
		if err != nil || strings.ContainsAny(trimmed, "xX_") {
			return "", nil, bad("Not a number of type DOUBLE")
		}
		canonical, v = formatDouble(f), f
	case List:
		list := splitList(trimmed)
		if _, words := k.rule.(oneOf); words {
			list = unique(list)
		}
		canonical, v = strings.Join(list, ","), list
	default:
		canonical, v = trimmed, trimmed
	}
	if k.rule != nil {
		if why := k.rule.why(k.Name, v); why != "" {
			shown := canonical
			if list, ok := v.([]string); ok {
				shown = showList(k.rule, list)
			}
			return "", nil, keyErr(k.Name, "Invalid value %s for configuration %s: %s", shown, k.Name, why)
		}
	}
	return canonical, v, nil
}

// showList shows the first element out of line where each is judged on its own,
// the whole list otherwise, as Kafka does.
func showList(r rule, list []string) string {
	if words, ok := r.(oneOf); ok {
		for _, e := range list {
			if !slices.Contains(words, e) {
				return e
			}
		}
	}
	return "[" + strings.Join(list, ", ") + "]"
}

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	var list []string
	for e := range strings.SplitSeq(s, ",") {
		list = append(list, strings.TrimSpace(e))
	}
	return list
}

func unique(list []string) []string {
	var out []string
	for _, e := range list {
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// formatDouble writes a number as Java does.
func formatDouble(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-3 || a >= 1e7) && !math.IsInf(f, 0) && !math.IsNaN(f) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
		if !strings.Contains(mantissa, ".") {
			mantissa += ".0"
		}
		n, _ := strconv.Atoi(exponent)
		return mantissa + "E" + strconv.Itoa(n)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") && !math.IsInf(f, 0) && !math.IsNaN(f) {
		s += ".0"
	}
	return s
}
