package objstore

import (
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
)

// The URL schemes.
const (
	SchemeS3   = "s3"
	SchemeFile = "file"
	SchemeMem  = "mem"
)

func urlError(raw, why string, a ...any) error {
	return fmt.Errorf("%w %q: %s", ErrInvalidURL, raw, fmt.Sprintf(why, a...))
}

// ParseURL reads file:///DIR, s3://BUCKET/PREFIX or mem:. The errors say what
// to write instead.
func ParseURL(raw string) (Location, error) {
	scheme, rest, ok := strings.Cut(raw, ":")
	if !ok {
		if strings.HasPrefix(raw, "/") || strings.HasPrefix(raw, ".") {
			return Location{}, urlError(raw, "a directory is written file:///DIR, with an absolute path")
		}
		return Location{}, urlError(raw, "want file:///DIR, s3://BUCKET/PREFIX or mem:")
	}
	switch scheme {
	case SchemeMem:
		if strings.Trim(rest, "/") != "" {
			return Location{}, urlError(raw, "the store in memory is written mem: alone")
		}
		return Location{Scheme: SchemeMem}, nil
	case SchemeFile:
		return parseFileURL(raw, rest)
	case SchemeS3:
		return parseS3URL(raw, rest)
	case "http", "https":
		return Location{}, urlError(raw, "write s3://BUCKET/PREFIX here and the address in remote.store.endpoint")
	case "s3a", "s3n", "minio", "aws":
		return Location{}, urlError(raw, "the scheme is s3, as in s3://BUCKET/PREFIX")
	}
	return Location{}, urlError(raw, "scheme %q is not known; want file:///DIR, s3://BUCKET/PREFIX or mem:", scheme)
}

func parseFileURL(raw, rest string) (Location, error) {
	dir, ok := strings.CutPrefix(rest, "//")
	if !ok {
		dir = rest
	}
	if host, after, found := strings.Cut(dir, "/"); found && host == "localhost" {
		dir = "/" + after
	}
	if !strings.HasPrefix(dir, "/") {
		return Location{}, urlError(raw, "the path must be absolute, as in file:///var/lib/strandline/tier (three slashes)")
	}
	dir, err := url.PathUnescape(dir)
	if err != nil {
		return Location{}, urlError(raw, "%v; write a percent sign as %%25", err)
	}
	if strings.ContainsAny(dir, "?#\x00") {
		return Location{}, urlError(raw, "a directory has no query or fragment")
	}
	dir = path.Clean(dir)
	if dir == "/" {
		return Location{}, urlError(raw, "the root directory cannot be a store; name a directory")
	}
	return Location{Scheme: SchemeFile, Bucket: dir}, nil
}

func parseS3URL(raw, rest string) (Location, error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok || strings.HasPrefix(rest, "/") || rest == "" {
		return Location{}, urlError(raw, "the bucket is missing; write s3://BUCKET or s3://BUCKET/PREFIX")
	}
	if strings.ContainsAny(rest, "?#") {
		return Location{}, urlError(raw, "options go into the remote.store.* keys, not into the URL")
	}
	bucket, prefix, _ := strings.Cut(rest, "/")
	if strings.Contains(bucket, "@") {
		return Location{}, urlError(strings.Replace(raw, bucket, "...", 1), "credentials go into remote.store.access.key.id and remote.store.secret.access.key")
	}
	if strings.Contains(bucket, ":") {
		return Location{}, urlError(raw, "the host goes into remote.store.endpoint; write s3://BUCKET/PREFIX")
	}
	if err := checkBucketName(bucket); err != "" {
		return Location{}, urlError(raw, "bucket %q %s", bucket, err)
	}
	prefix = strings.Trim(prefix, "/")
	if prefix != "" {
		if err := ValidateKey(prefix); err != nil {
			return Location{}, urlError(raw, "prefix: %v", err)
		}
	}
	return Location{Scheme: SchemeS3, Bucket: bucket, Prefix: prefix}, nil
}

// checkBucketName returns what is wrong with a bucket's name, or "". Old
// buckets may have capitals and underscores; they are let through.
func checkBucketName(b string) string {
	if len(b) < 3 || len(b) > 255 {
		return "must have 3 to 63 characters"
	}
	for _, r := range b {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.', r == '_':
		default:
			return fmt.Sprintf("has the character %q", r)
		}
	}
	if net.ParseIP(b) != nil {
		return "looks like an address; it goes into remote.store.endpoint"
	}
	return ""
}
