package serve

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// readyLine is what the ready line and the ready file say.
type readyLine struct {
	NodeID    int32    `json:"node.id"`
	ClusterID string   `json:"cluster.id"`
	Listeners []string `json:"listeners"`
	Admin     string   `json:"admin"`
	Data      string   `json:"data"`
	Tier      string   `json:"tier"`
	StartMS   int64    `json:"start_ms"`
}

// writeReadyFile renames the line into place, so that a reader sees all or
// nothing.
func writeReadyFile(name string, line readyLine) error {
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".ready-*")
	if err != nil {
		return fmt.Errorf("ready.file: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(append(data, '\n'))
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("ready.file: %w", err)
	}
	return nil
}

// banner is the one thing that goes to standard output. command is how the
// program was called, so that the lines can be pasted.
func banner(out io.Writer, command, version string, line readyLine) {
	bootstrap := ""
	if len(line.Listeners) > 0 {
		_, bootstrap, _ = strings.Cut(line.Listeners[0], "://")
	}
	flag := ""
	if bootstrap != "localhost:9092" {
		flag = " -b " + bootstrap
	}
	admin := ""
	if line.Admin != "http://localhost:9644" {
		admin = " --admin " + line.Admin
	}
	fmt.Fprintf(out, `strandline %s is ready
  clients    %s
  admin      %s
  data       %s
  tier       %s

Try, in another terminal:
  echo hello | %[6]s produce greetings%[7]s
  %[6]s consume greetings --exit-at-end%[7]s
  %[6]s tier status%[8]s
`, version, strings.Join(line.Listeners, ", "), line.Admin, line.Data, line.Tier, command, flag, admin)
}
