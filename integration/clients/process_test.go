package clients

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

// process is a client in another language: one JSON command a line goes in, one
// JSON answer a line comes back.
type process struct {
	in  io.WriteCloser
	out *bufio.Scanner
}

// python starts a client of the virtual environment that tools.sh fills.
func python(name string) func(t *testing.T, addr string) driver {
	return func(t *testing.T, addr string) driver {
		return startProcess(t, kit.PythonClients(t), "testdata/client.py", name, addr)
	}
}

func debianPython(t *testing.T, addr string) driver {
	return startProcess(t, kit.DebianPythonKafka(t), "testdata/client.py", "kafka-python", addr)
}

func kafkajs(t *testing.T, addr string) driver {
	return startProcess(t, kit.Tool(t, "node"), "testdata/client.js", kit.NodeClients(t), addr)
}

func startProcess(t *testing.T, name string, args ...string) driver {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, kit.StartChild(cmd))
	p := &process{in: in, out: bufio.NewScanner(out)}
	p.out.Buffer(nil, 64<<20)
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	var got struct{ Version string }
	require.NoError(t, p.call("version", nil, &got))
	t.Log(args, got.Version)
	return p
}

func (p *process) call(op string, args map[string]any, answer any) error {
	all := map[string]any{"op": op}
	for k, v := range args {
		all[k] = v
	}
	line, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return err
	}
	if !p.out.Scan() {
		return fmt.Errorf("%s: the client ended: %w", op, p.out.Err())
	}
	var failed struct{ Error string }
	if err := json.Unmarshal(p.out.Bytes(), &failed); err != nil {
		return fmt.Errorf("%s: %w: %.200s", op, err, p.out.Text())
	}
	if failed.Error != "" {
		return fmt.Errorf("%s: %s", op, failed.Error)
	}
	return json.Unmarshal(p.out.Bytes(), answer)
}

// told is a record as the scripts know it; bytes are base64, null is null.
type told struct {
	record
	Key     *string      `json:"key"`
	Value   *string      `json:"value"`
	Headers [][2]*string `json:"headers"`
}

func encoded(b []byte) *string {
	if b == nil {
		return nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return &s
}

func decoded(s *string) []byte {
	if s == nil {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(*s)
	if err != nil {
		return []byte(err.Error())
	}
	return append([]byte{}, b...)
}

func (p *process) produce(topic, codec string, idempotent bool, records []record) error {
	out := []told{}
	for _, r := range records {
		x := told{record: r, Key: encoded(r.Key), Value: encoded(r.Value), Headers: [][2]*string{}}
		for _, h := range r.Headers {
			x.Headers = append(x.Headers, [2]*string{&h.Name, encoded(h.Value)})
		}
		out = append(out, x)
	}
	var answer struct{ Offsets []int64 }
	err := p.call("produce", map[string]any{"topic": topic, "codec": codec, "idempotent": idempotent, "records": out}, &answer)
	for i := 1; i < len(answer.Offsets); i++ {
		if answer.Offsets[i] != answer.Offsets[i-1]+1 {
			return fmt.Errorf("acknowledged out of order: %v", answer.Offsets)
		}
	}
	return err
}

func (p *process) consume(topic string, partition int32, offset int64, count int) ([]record, error) {
	var answer struct{ Records []told }
	err := p.call("consume", map[string]any{"topic": topic, "partition": partition, "offset": offset, "count": count}, &answer)
	var out []record
	for _, x := range answer.Records {
		r := x.record
		r.Key, r.Value = decoded(x.Key), decoded(x.Value)
		for _, h := range x.Headers {
			r.Headers = append(r.Headers, field{*h[0], decoded(h[1])})
		}
		out = append(out, r)
	}
	return out, err
}

func (p *process) offsets(topic string, partition int32, timestamp int64) (int64, int64, int64, error) {
	var answer struct{ Earliest, Latest, At int64 }
	err := p.call("offsets", map[string]any{"topic": topic, "partition": partition, "timestamp": timestamp}, &answer)
	return answer.Earliest, answer.Latest, answer.At, err
}

func (p *process) create(topic string, partitions int32) error {
	return p.call("create", map[string]any{"topic": topic, "partitions": partitions}, &struct{}{})
}

func (p *process) describe(topic string) (int, error) {
	var answer struct{ Partitions int }
	err := p.call("describe", map[string]any{"topic": topic}, &answer)
	return answer.Partitions, err
}

func (p *process) remove(topic string) error {
	return p.call("delete", map[string]any{"topic": topic}, &struct{}{})
}

// kcat reads records from its standard input, each with the same headers.
type kcat struct {
	t    *testing.T
	addr string
}

const kcatSeparators = "\x01\x02"

var kcatHeaders = []field{{"a", []byte("1")}, {"b", []byte{}}, {"a", []byte("x=y")}, {"c", nil}}

func newKcat(t *testing.T, addr string) driver {
	kit.Tool(t, "kcat")
	return kcat{t, addr}
}

func (k kcat) run(stdin string, args ...string) (string, error) {
	out, errOut, code := kit.Kcat(k.t, stdin, append([]string{"-b", k.addr}, args...)...)
	if code != 0 {
		return out, fmt.Errorf("kcat %v: exit %d: %s", args, code, errOut)
	}
	return out, nil
}

func (k kcat) produce(topic, codec string, idempotent bool, records []record) error {
	var in strings.Builder
	for _, r := range records {
		in.Write(r.Key)
		in.WriteString(kcatSeparators[:1])
		in.Write(r.Value)
		in.WriteString(kcatSeparators[1:])
	}
	args := []string{
		"-P", "-t", topic, "-p", strconv.Itoa(int(records[0].Partition)), "-z", codec, "-Z", "-K", kcatSeparators[:1], "-D", kcatSeparators[1:],
		"-X", "acks=all", "-X", "enable.idempotence=" + strconv.FormatBool(idempotent),
	}
	for _, h := range kcatHeaders {
		if h.Value == nil {
			args = append(args, "-H", h.Name)
			continue
		}
		args = append(args, "-H", h.Name+"="+string(h.Value))
	}
	_, err := k.run(in.String(), args...)
	return err
}

func (k kcat) consume(topic string, partition int32, offset int64, count int) ([]record, error) {
	out, err := k.run("", "-C", "-q", "-t", topic, "-p", strconv.Itoa(int(partition)), "-o", strconv.FormatInt(offset, 10), "-c", strconv.Itoa(count),
		"-X", "fetch.wait.max.ms=100", "-f", `%o %T %K %S %k%s%h\n`)
	if err != nil {
		return nil, err
	}
	var records []record
	for len(out) > 0 {
		var r record
		var key, value int
		if _, err := fmt.Sscanf(out, "%d %d %d %d ", &r.Offset, &r.Timestamp, &key, &value); err != nil {
			return records, err
		}
		rest := strings.SplitN(out, " ", 5)[4]
		r.Key, rest = cut(rest, key)
		r.Value, rest = cut(rest, value)
		headers, after, _ := strings.Cut(rest, "\n")
		if headers != "" {
			for h := range strings.SplitSeq(headers, ",") {
				name, text, _ := strings.Cut(h, "=")
				f := field{name, []byte(text)}
				if text == "NULL" {
					f.Value = nil
				}
				r.Headers = append(r.Headers, f)
			}
		}
		records, out = append(records, r), after
	}
	return records, nil
}

func cut(text string, n int) ([]byte, string) {
	if n < 0 {
		return nil, text
	}
	return []byte(text[:n]), text[n:]
}

func (k kcat) offsets(topic string, partition int32, timestamp int64) (earliest, latest, at int64, err error) {
	for spec, to := range map[int64]*int64{-2: &earliest, -1: &latest, timestamp: &at} {
		out, err := k.run("", "-Q", "-t", fmt.Sprintf("%s:%d:%d", topic, partition, spec))
		if err != nil {
			return 0, 0, 0, err
		}
		if _, err := fmt.Sscanf(out, topic+" [1] offset %d", to); err != nil {
			return 0, 0, 0, fmt.Errorf("%w: %s", err, out)
		}
	}
	return earliest, latest, at, nil
}

var errNoAdmin = errors.New("kcat has no admin client")

func (k kcat) create(string, int32) error   { return errNoAdmin }
func (k kcat) describe(string) (int, error) { return 0, errNoAdmin }
func (k kcat) remove(string) error          { return errNoAdmin }
