package kit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Kafka is a running Apache Kafka: one node, controller and broker in one.
type Kafka struct {
	Dir  string
	Addr string // bootstrap address

	t      testing.TB
	props  string
	heap   string
	cmd    *exec.Cmd
	exited chan struct{}
}

// NewKafka formats a node's directories without starting it. set adds
// properties; heap is what -Xms and -Xmx are given, such as 1G. Where Kafka is
// not installed the test is skipped.
func NewKafka(t testing.TB, dir, heap string, set map[string]string) *Kafka {
	t.Helper()
	addr, controller := freeAddr(t), freeAddr(t)
	all := map[string]string{
		"process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": "1@" + controller,
		"listeners":            "PLAINTEXT://" + addr + ",CONTROLLER://" + controller,
		"advertised.listeners": "PLAINTEXT://" + addr, "controller.listener.names": "CONTROLLER",
		"log.dirs": filepath.Join(dir, "logs"), "offsets.topic.replication.factor": "1",
		"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1",
		"share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
	}
	for k, v := range set {
		all[k] = v
	}
	var props strings.Builder
	for k, v := range all {
		fmt.Fprintf(&props, "%s=%s\n", k, v)
	}
	k := &Kafka{Dir: dir, Addr: addr, t: t, heap: heap, props: filepath.Join(dir, "server.properties")}
	if err := os.WriteFile(k.props, []byte(props.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	id, _, code := KafkaTool(t, "", "kafka.tools.StorageTool", "random-uuid")
	if code == 0 {
		var out, errOut string
		if out, errOut, code = KafkaTool(t, "", "kafka.tools.StorageTool", "format", "-t", strings.TrimSpace(id), "-c", k.props); code != 0 {
			t.Fatalf("format: %s%s", out, errOut)
		}
	}
	t.Cleanup(k.Kill)
	return k
}

// Spawn starts the process without waiting until it answers.
func (k *Kafka) Spawn() {
	k.t.Helper()
	libs := kafkaLibs(k.t)
	k.cmd = exec.Command(Tool(k.t, "java"), "-Xms"+k.heap, "-Xmx"+k.heap, "-XX:+UseG1GC",
		"-Dlog4j2.configurationFile="+filepath.Join(libs, "log4j2.yaml"), "-cp", libs+"/*", "kafka.Kafka", k.props)
	out, err := os.OpenFile(filepath.Join(k.Dir, "out.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		k.t.Fatal(err)
	}
	defer out.Close()
	k.cmd.Stdout, k.cmd.Stderr = out, out
	if err := StartChild(k.cmd); err != nil {
		k.t.Fatal(err)
	}
	exited, cmd := make(chan struct{}), k.cmd
	k.exited = exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
}

// Pid returns the process id.
func (k *Kafka) Pid() int { return k.cmd.Process.Pid }

// Stop ends the process with SIGTERM and waits.
func (k *Kafka) Stop() {
	_ = k.cmd.Process.Signal(syscall.SIGTERM)
	<-k.exited
}

// Kill ends the process with SIGKILL, if it runs, and waits.
func (k *Kafka) Kill() {
	if k.cmd == nil || k.cmd.Process == nil {
		return
	}
	_ = k.cmd.Process.Kill()
	<-k.exited
}
