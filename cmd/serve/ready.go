package serve

import (
	"encoding/json"
	"errors"
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

// checkReadyFile refuses a ready.file that could not be written, and leaves
// nothing on the disk. A folder that is missing is fine where the start makes it:
// one of made, or above one of them.
func checkReadyFile(name string, made []string) error {
	refuse := func(reason string) error {
		return &ExitError{Code: ExitConfig, Err: fmt.Errorf("ready.file %s: %s", name, reason)}
	}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return refuse("it is a directory: name a file in it")
	}
	dir, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return refuse(err.Error())
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		for _, m := range made {
			if m, err := filepath.Abs(m); err == nil && strings.HasPrefix(m+"/", strings.TrimSuffix(dir, "/")+"/") {
				return nil
			}
		}
		return refuse("its folder " + dir + " does not exist: make it, or name another file")
	case err != nil:
		return refuse(err.Error())
	case !info.IsDir():
		return refuse(dir + " is not a folder")
	}
	tmp, err := os.CreateTemp(dir, ".ready-*")
	if err != nil {
		return refuse(fmt.Sprintf("no file can be made in %s: %v", dir, errors.Unwrap(err)))
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
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
