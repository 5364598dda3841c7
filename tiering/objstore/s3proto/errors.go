package s3proto

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"strandline/tiering/objstore"
)

// verdict is the class and the remedy of an error.
type verdict struct {
	class  error
	remedy string
}

const (
	checkKeys   = "check remote.store.access.key.id and remote.store.secret.access.key"
	checkPolicy = "the credentials need s3:GetObject, PutObject, DeleteObject, ListBucket and AbortMultipartUpload on this bucket"
	checkBucket = "create the bucket or correct remote.store.url"
	checkRegion = "set remote.store.region to the region of the bucket"
	checkSum    = "if the store does not know this checksum, set remote.store.checksum to md5, sha256 or none"
)

// byCode has the error codes of S3, MinIO and others.
var byCode = map[string]verdict{
	"NoSuchKey":                          {objstore.ErrNotFound, ""},
	"NotFound":                           {objstore.ErrNotFound, ""},
	"NoSuchUpload":                       {objstore.ErrNotFound, ""},
	"InvalidPart":                        {objstore.ErrNotFound, ""}, // versitygw, of an upload that is no more
	"NoSuchBucket":                       {objstore.ErrNoBucket, checkBucket},
	"InvalidBucketName":                  {objstore.ErrNoBucket, checkBucket},
	"PreconditionFailed":                 {objstore.ErrExists, ""},
	"ConditionalRequestConflict":         {objstore.ErrConflict, ""},
	"OperationAborted":                   {objstore.ErrConflict, ""},
	"InvalidRange":                       {objstore.ErrRange, ""},
	"AccessDenied":                       {objstore.ErrAccess, checkPolicy},
	"AllAccessDisabled":                  {objstore.ErrAccess, checkPolicy},
	"AccountProblem":                     {objstore.ErrAccess, "the account of the bucket has a problem at its provider"},
	"InvalidAccessKeyId":                 {objstore.ErrAccess, checkKeys},
	"XAdminUserNotFound":                 {objstore.ErrAccess, checkKeys}, // versitygw, with a 404
	"SignatureDoesNotMatch":              {objstore.ErrAccess, checkKeys + " (the secret is wrong)"},
	"InvalidToken":                       {objstore.ErrAccess, checkKeys},
	"ExpiredToken":                       {objstore.ErrAccess, "the session credentials have expired"},
	"RequestTimeTooSkewed":               {objstore.ErrAccess, "set the clock of this machine: it differs from the store's by more than 15 minutes"},
	"SlowDown":                           {objstore.ErrThrottled, ""},
	"SlowDownRead":                       {objstore.ErrThrottled, ""},
	"SlowDownWrite":                      {objstore.ErrThrottled, ""},
	"Throttling":                         {objstore.ErrThrottled, ""},
	"ThrottlingException":                {objstore.ErrThrottled, ""},
	"RequestLimitExceeded":               {objstore.ErrThrottled, ""},
	"TooManyRequests":                    {objstore.ErrThrottled, ""},
	"BandwidthLimitExceeded":             {objstore.ErrThrottled, ""},
	"ServiceUnavailable":                 {objstore.ErrThrottled, ""},
	"InternalError":                      {objstore.ErrUnavailable, ""},
	"RequestTimeout":                     {objstore.ErrUnavailable, ""},
	"IncompleteBody":                     {objstore.ErrUnavailable, ""},
	"XMinioServerNotInitialized":         {objstore.ErrUnavailable, ""},
	"XMinioStorageFull":                  {objstore.ErrFull, "free space in the store"},
	"InsufficientStorage":                {objstore.ErrFull, "free space in the store"},
	"QuotaExceeded":                      {objstore.ErrFull, "raise the quota of the bucket"},
	"XMinioAdminBucketQuotaExceeded":     {objstore.ErrFull, "raise the quota of the bucket"},
	"BadDigest":                          {objstore.ErrChecksum, ""},
	"XAmzContentChecksumMismatch":        {objstore.ErrChecksum, ""},
	"XAmzContentSHA256Mismatch":          {objstore.ErrChecksum, ""},
	"InvalidDigest":                      {objstore.ErrInvalid, checkSum},
	"NotImplemented":                     {objstore.ErrInvalid, checkSum},
	"InvalidStorageClass":                {objstore.ErrInvalid, "correct remote.store.storage.class"},
	"EntityTooLarge":                     {objstore.ErrInvalid, "lower remote.store.part.size.bytes"},
	"EntityTooSmall":                     {objstore.ErrInvalid, "raise remote.store.part.size.bytes"},
	"KeyTooLongError":                    {objstore.ErrInvalidKey, "shorten the prefix in remote.store.url"},
	"PermanentRedirect":                  {objstore.ErrInvalid, checkRegion},
	"TemporaryRedirect":                  {objstore.ErrInvalid, checkRegion},
	"AuthorizationHeaderMalformed":       {objstore.ErrInvalid, checkRegion},
	"IllegalLocationConstraintException": {objstore.ErrInvalid, checkRegion},
}

// byStatus judges answers without a known code, as those to HEAD, which have no
// body.
func byStatus(status int) (verdict, bool) {
	switch {
	case status == http.StatusNotFound:
		return verdict{objstore.ErrNotFound, ""}, true
	case status == http.StatusPreconditionFailed:
		return verdict{objstore.ErrExists, ""}, true
	case status == http.StatusConflict:
		return verdict{objstore.ErrConflict, ""}, true
	case status == http.StatusRequestedRangeNotSatisfiable:
		return verdict{objstore.ErrRange, ""}, true
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return verdict{objstore.ErrAccess, checkKeys + "; " + checkPolicy}, true
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return verdict{objstore.ErrThrottled, ""}, true
	case status == http.StatusInsufficientStorage:
		return verdict{objstore.ErrFull, "free space in the store"}, true
	case status == http.StatusRequestTimeout, status >= 500:
		return verdict{objstore.ErrUnavailable, ""}, true
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect:
		return verdict{objstore.ErrInvalid, checkRegion}, true
	case status >= 400:
		return verdict{objstore.ErrInvalid, ""}, true
	}
	return verdict{}, false
}

// Answer is what of a store's answer tells why a request failed; zero where none
// came.
type Answer struct {
	Status        int
	Code, Message string
	// Region is where the bucket is, where the answer says so.
	Region string
}

func (a Answer) judge() (verdict, bool) {
	v, ok := byCode[a.Code]
	if !ok && a.Status == http.StatusBadRequest && strings.Contains(strings.ToLower(a.Message), "checksum") {
		v, ok = verdict{objstore.ErrInvalid, checkSum}, true
	}
	if !ok {
		v, ok = byStatus(a.Status)
	}
	if v.remedy == checkRegion && a.Region != "" {
		v.remedy = "set remote.store.region=" + a.Region
	}
	return v, ok
}

// Gone is err, unless it only says that there is nothing to delete: S3 does not
// say so, but others do.
func Gone(err error) error {
	if errors.Is(err, objstore.ErrNotFound) {
		return nil
	}
	return err
}

// DeletesSingly tells whether the error code means a store that knows no DELETE
// of several objects.
func DeletesSingly(code string) bool { return code == "NotImplemented" || code == "MethodNotAllowed" }

// judgeTransport judges errors that came without an answer.
func judgeTransport(where string, err error) verdict {
	if where == "" {
		where = "AWS"
	}
	var (
		unknownCA x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		dns       *net.DNSError
		op        *net.OpError
		send      *url.Error
	)
	switch {
	case errors.As(err, &unknownCA), errors.As(err, &hostname), errors.As(err, &invalid):
		return verdict{objstore.ErrAccess, "the certificate of " + where + " is not trusted here; install its CA, or use http:// in remote.store.endpoint"}
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return verdict{objstore.ErrInvalid, "the store at " + where + " does not speak TLS; write http:// in remote.store.endpoint"}
	case strings.Contains(err.Error(), "get identity") || strings.Contains(err.Error(), "failed to refresh cached credentials"):
		return verdict{objstore.ErrAccess, "no credentials found; set remote.store.access.key.id and remote.store.secret.access.key, or the AWS environment"}
	case errors.As(err, &dns):
		return verdict{objstore.ErrUnavailable, "the name " + dns.Name + " does not resolve; check remote.store.endpoint, and remote.store.path.style=true for stores without bucket host names"}
	case errors.As(err, &op), errors.As(err, &send), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return verdict{objstore.ErrUnavailable, "is the store at " + where + " running and reachable? the address is remote.store.endpoint"}
	}
	return verdict{objstore.ErrUnavailable, ""}
}
