package config

import (
	"fmt"
	"strings"
)

// Reference is the generated part of docs/configuration.md, in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("## Topic keys\n\n" +
		"Every key can be changed while the topic is in use. A key that a topic does not set has the value of its broker key: " +
		"of this broker, else of all brokers, else of the file, else the default.\n\n" +
		"| key | type | default | values | broker key | what it does |\n|---|---|---|---|---|---|\n")
	for _, k := range topicTable.sorted {
		if k.Effect == Effective && !k.Internal {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n",
				k.Name, typeWord(k.Type), shownDefault(k), allowed(k), codes(k.Synonyms), k.Doc)
		}
	}
	b.WriteString("\nKnown, accepted and without effect, with one warning where they are set:\n\n" +
		"| key | why |\n|---|---|\n")
	for _, k := range topicTable.sorted {
		if k.Effect == Ignored {
			fmt.Fprintf(&b, "| `%s` | %s |\n", k.Name, k.Reason)
		}
	}
	for _, ours := range []bool{true, false} {
		if ours {
			b.WriteString("\n## Keys of a node that Kafka does not have\n\n")
		} else {
			b.WriteString("\n## Keys of a node that Kafka has too\n\n")
		}
		b.WriteString("| key | type | default | values | while running | what it does |\n|---|---|---|---|---|---|\n")
		for _, k := range brokerTable.sorted {
			if k.Effect == Effective && !k.Internal && k.Ours == ours {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n",
					k.Name, typeWord(k.Type), shownDefault(k), allowed(k), dynamicWord(k.Dynamic), k.Doc)
			}
		}
	}
	b.WriteString("\n## Keys of Kafka without effect\n\nSetting one costs a warning at start.\n\n| why | keys |\n|---|---|\n")
	reasons(&b, Ignored)
	b.WriteString("\n## Keys of Kafka that are refused\n\n" +
		"Ignoring them would weaken safety, so setting one to anything but its default is an error.\n\n| why | keys |\n|---|---|\n")
	reasons(&b, Unsafe)
	return b.String()
}

// reasons writes the broker keys of one effect, grouped by reason.
func reasons(b *strings.Builder, e Effect) {
	var order []string
	keys := map[string][]string{}
	for _, k := range brokerTable.sorted {
		if k.Effect != e {
			continue
		}
		if keys[k.Reason] == nil {
			order = append(order, k.Reason)
		}
		keys[k.Reason] = append(keys[k.Reason], k.Name)
	}
	for _, r := range order {
		fmt.Fprintf(b, "| %s | %s |\n", r, codes(keys[r]))
	}
}

func codes(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "`" + n + "`"
	}
	return strings.Join(out, ", ")
}

func typeWord(t Type) string { return strings.ToLower(t.String()) }

func dynamicWord(d Dynamic) string {
	switch d {
	case PerBroker:
		return "one broker"
	case ClusterWide:
		return "one broker or all"
	}
	return "no"
}

func shownDefault(k Key) string {
	switch {
	case !k.HasDefault:
		return "none"
	case k.Default == "":
		return "empty"
	}
	return "`" + k.Default + "`"
}

// allowed says which values a key takes.
func allowed(k Key) string {
	switch r := k.rule.(type) {
	case within:
		if r.max == 1<<63-1 {
			return fmt.Sprintf("at least %d", r.min)
		}
		return fmt.Sprintf("%d to %d", r.min, r.max)
	case gzipLevel:
		return "1 to 9, or -1"
	case oneOf:
		return strings.Join(r, ", ")
	case notEmpty:
		return "not empty"
	}
	return ""
}
