package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientFlags are the flags that every client command has.
type clientFlags struct {
	bootstrap     string
	admin         string
	commandConfig string
	output        string
	timeout       time.Duration
}

const defaultAdmin = "http://localhost:9644"

func (c *clientFlags) add(cmd *cobra.Command) {
	bootstrap := os.Getenv("STRANDLINE_BOOTSTRAP")
	if bootstrap == "" {
		bootstrap = "localhost:9092"
	}
	f := cmd.PersistentFlags()
	f.StringVarP(&c.bootstrap, "bootstrap-server", "b", bootstrap, "host:port of any broker, several with commas (env STRANDLINE_BOOTSTRAP)")
	f.StringVar(&c.admin, "admin", defaultAdmin, "URL of the broker's admin listener")
	f.StringVar(&c.commandConfig, "command-config", "", "properties file with client settings")
	f.StringVarP(&c.output, "output", "o", "text", "text or json")
	f.DurationVar(&c.timeout, "timeout", 30*time.Second, "give up after this long")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error { return c.check() }
}

// check refuses values that no command can use, before anything is sent.
func (c *clientFlags) check() error {
	if c.output != "text" && c.output != "json" {
		return usagef("-o %s: want text or json", c.output)
	}
	if c.timeout <= 0 {
		return usagef("--timeout %s: want a time above zero, as in 30s", c.timeout)
	}
	if u, err := url.Parse(c.admin); err != nil || u.Scheme != "http" || u.Host == "" {
		return usagef("--admin %s: want http://host:port", c.admin)
	}
	if _, err := c.seeds(); err != nil {
		return err
	}
	_, err := clientID(c.commandConfig)
	return err
}

// json reports whether output is JSON.
func (c *clientFlags) json() bool { return c.output == "json" }

// checkPartition refuses a --partition that there cannot be; -1 is none.
func checkPartition(p int32) error {
	if p < -1 {
		return usagef("--partition %d: want 0 or more", p)
	}
	return nil
}

// seeds are the addresses of -b.
func (c *clientFlags) seeds() ([]string, error) {
	seeds := strings.Split(c.bootstrap, ",")
	for i, s := range seeds {
		s = strings.TrimSpace(s)
		if seeds[i] = s; s == "" || strings.ContainsAny(s, "/ ") {
			return nil, usagef("-b %s: want host:port, several with commas, without a scheme", c.bootstrap)
		}
	}
	return seeds, nil
}

func (c *clientFlags) client(opts ...kgo.Opt) (*kgo.Client, error) {
	seeds, err := c.seeds()
	if err != nil {
		return nil, err
	}
	base := []kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.ClientID("strandline-cli"),
		kgo.RetryTimeout(c.timeout), kgo.DialTimeout(min(c.timeout, 5*time.Second)), kgo.RequestRetries(3),
	}
	id, err := clientID(c.commandConfig)
	if err != nil {
		return nil, err
	}
	if id != "" {
		base = append(base, kgo.ClientID(id))
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return cl, nil
}

func (c *clientFlags) withAdmin(ctx context.Context, do func(context.Context, *kadm.Client) error) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(int32(c.timeout.Milliseconds()))
	err = do(ctx, adm)
	if errors.Is(err, context.DeadlineExceeded) && !errors.As(err, new(*serverError)) {
		return &serverError{fmt.Errorf("%s gave no answer within %s: is that a Kafka listener? --timeout waits longer: %w", c.bootstrap, c.timeout, err)}
	}
	return err
}

// serverError says already what a person should do.
type serverError struct{ error }

func (e *serverError) Unwrap() error { return e.error }

// clientID reads the one setting that a plaintext client has from a properties
// file. A security setting is an error rather than ignored.
func clientID(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", usagef("--command-config: %w", err)
	}
	defer f.Close()
	id := ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		switch key, value = strings.TrimSpace(key), strings.TrimSpace(value); {
		case key == "client.id":
			id = value
		case key == "security.protocol" && value == "PLAINTEXT":
		case strings.HasPrefix(key, "security.") || strings.HasPrefix(key, "ssl.") || strings.HasPrefix(key, "sasl."):
			return "", usagef("--command-config: %s=%s is not supported yet; only PLAINTEXT is", key, value)
		}
	}
	return id, nil
}

// getJSON reads a page of the admin listener.
func (c *clientFlags) getJSON(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.admin, "/")+path, nil)
	if err != nil {
		return usagef("--admin %s: %w", c.admin, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return &serverError{fmt.Errorf("no admin listener answers at %s: is the broker running? --admin names another, as the broker's ready line does: %w", c.admin, err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 256<<20))
	if err != nil {
		return fmt.Errorf("reading %s: %w", req.URL, err)
	}
	if resp.StatusCode == http.StatusNotFound && strings.Contains(path, "?topic=") {
		return fmt.Errorf("%w: %s", kerr.UnknownTopicOrPartition, strings.TrimSpace(string(body)))
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", req.URL, resp.Status, strings.TrimSpace(string(body)))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s does not answer as a broker's admin listener does: %w", req.URL, err)
	}
	return nil
}

// explain turns an error into what a person reads: the Kafka error name and a
// sentence.
func explain(err error) string {
	if said := (*serverError)(nil); errors.As(err, &said) {
		return err.Error()
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return fmt.Sprintf("no address is known for host %q: -b wants host:port", dns.Name)
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		// The broker's own sentence is better than the general one.
		text := err.Error()
		if own := strings.TrimPrefix(text, k.Error()+": "); own != text {
			return k.Message + ": " + own
		}
		if text == k.Error() || text == "" {
			return fmt.Sprintf("%s: %s", k.Message, strings.TrimSuffix(k.Description, ".")+".")
		}
		if !strings.Contains(text, k.Message) {
			return fmt.Sprintf("%s: %s", k.Message, text)
		}
		return text
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Sprintf("no broker answers at %v: %v; is it running? `strandline server` starts one, -b names another", op.Addr, op.Err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timed out (--timeout raises the limit): " + err.Error()
	}
	return err.Error()
}
