package s3proto

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Checksum says which checksum goes with an upload for the store to verify.
type Checksum string

// The checksums. CRC32C costs no pass over a body whose checksum is known; SHA256
// and MD5 need one of their own; None leaves verification to the network.
const (
	ChecksumAuto   Checksum = "auto" // CRC32C
	ChecksumCRC32C Checksum = "crc32c"
	ChecksumSHA256 Checksum = "sha256"
	ChecksumMD5    Checksum = "md5"
	ChecksumNone   Checksum = "none"
)

// Sizes of parts.
const (
	// DefaultPartBytes is a multiple of what segment checksums come in.
	DefaultPartBytes = 64 << 20
	// MinPartBytes is S3's lower limit.
	MinPartBytes = 5 << 20
	partUnit     = 1 << 20
	// maxParts is S3's limit of parts in an upload.
	maxParts = 10_000
	// maxPageKeys is S3's limit of keys in a page or batch.
	maxPageKeys = 1000
)

// Config says where a bucket is and how to speak to it.
type Config struct {
	Bucket string
	Prefix string // for Location only
	// Endpoint is a URL, or host:port (https); empty: AWS.
	Endpoint string
	// Region: empty is us-east-1 at an endpoint, else the AWS default chain's.
	Region    string
	PathStyle bool
	// AccessKeyID and SecretAccessKey: both empty is the AWS default chain.
	AccessKeyID, SecretAccessKey, SessionToken string
	Checksum                                   Checksum // empty: auto
	StorageClass                               string   // empty: the bucket's
	// PartBytes is rounded up to a whole MiB; 0: DefaultPartBytes.
	PartBytes int64
	// PageKeys is the size of a page of List and of a batch of Delete; 0: the
	// most that S3 allows.
	PageKeys int
	// Transport replaces the HTTP transport, in tests.
	Transport http.RoundTripper
}

// normalise fills in defaults and refuses what cannot work.
func (c Config) normalise() (Config, error) {
	switch c.Checksum {
	case "":
		c.Checksum = ChecksumAuto
	case ChecksumAuto, ChecksumCRC32C, ChecksumSHA256, ChecksumMD5, ChecksumNone:
	default:
		return c, fmt.Errorf("remote.store.checksum=%q: want auto, crc32c, sha256, md5 or none", c.Checksum)
	}
	if c.PageKeys <= 0 || c.PageKeys > maxPageKeys {
		c.PageKeys = maxPageKeys
	}
	if c.PartBytes == 0 {
		c.PartBytes = DefaultPartBytes
	}
	if c.PartBytes < MinPartBytes {
		return c, fmt.Errorf("remote.store.part.size.bytes=%d: at least %d", c.PartBytes, MinPartBytes)
	}
	c.PartBytes = (c.PartBytes + partUnit - 1) / partUnit * partUnit
	if (c.AccessKeyID == "") != (c.SecretAccessKey == "") {
		return c, fmt.Errorf("set both remote.store.access.key.id and remote.store.secret.access.key, or neither")
	}
	if c.Endpoint == "" {
		return c, nil
	}
	if !strings.Contains(c.Endpoint, "://") {
		c.Endpoint = "https://" + c.Endpoint
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return c, fmt.Errorf("remote.store.endpoint=%q: want http://HOST:PORT or https://HOST:PORT", c.Endpoint)
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		return c, fmt.Errorf("remote.store.endpoint=%q: only a scheme, host and port; the bucket goes into remote.store.url", c.Endpoint)
	}
	c.Endpoint = u.Scheme + "://" + u.Host
	// A bucket cannot be a host name in front of these.
	c.PathStyle = c.PathStyle || net.ParseIP(u.Hostname()) != nil || u.Hostname() == "localhost"
	if c.Region == "" {
		c.Region = "us-east-1"
	}
	return c, nil
}

// Tune sets the transport up: no deadlines beyond connecting, since the guard's
// watchdog ends what makes no progress.
func Tune(t *http.Transport) {
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	t.TLSHandshakeTimeout = 10 * time.Second
	t.ExpectContinueTimeout = time.Second
	t.IdleConnTimeout = 90 * time.Second
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 128, 128
	t.ReadBufferSize, t.WriteBufferSize = 64<<10, 64<<10
	t.DisableCompression = true
	t.ForceAttemptHTTP2 = false // S3 speaks 1.1
}
