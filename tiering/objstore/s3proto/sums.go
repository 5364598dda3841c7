package s3proto

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"io"

	"strandline/tiering/objstore"
)

// CRCMetadata is the user metadata that holds the CRC32C of the object where the
// store may not keep it: for uploads with another checksum.
const CRCMetadata = "crc32c"

// EncodeCRC is how headers write a CRC32C.
func EncodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// DecodeCRC is its inverse; false for anything else.
func DecodeCRC(s string) (uint32, bool) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b), true
}

// Sums are the values, in base64, of the headers that make the store verify a
// body; at most one is set.
type Sums struct{ CRC32C, SHA256, MD5 string }

// SumsCRC tells whether uploads carry a CRC32C.
func (s *Session) SumsCRC() bool {
	return s.Config.Checksum == ChecksumAuto || s.Config.Checksum == ChecksumCRC32C
}

// Sums computes them for a body whose CRC32C is known; only sha256 and md5 read
// it.
func (s *Session) Sums(op objstore.Verb, key string, body objstore.Body, crc uint32) (c Sums, err error) {
	switch s.Config.Checksum {
	case ChecksumAuto, ChecksumCRC32C:
		c.CRC32C = EncodeCRC(crc)
	case ChecksumSHA256:
		c.SHA256, err = sumBody(body, sha256.New())
	case ChecksumMD5:
		c.MD5, err = sumBody(body, md5.New())
	}
	if err != nil {
		return Sums{}, s.Classed(op, key, objstore.ErrInvalid, err)
	}
	return c, nil
}

func sumBody(body objstore.Body, h hash.Hash) (string, error) {
	n, err := io.Copy(h, io.NewSectionReader(body, 0, body.Size()))
	if err == nil && n != body.Size() {
		err = io.ErrUnexpectedEOF
	}
	return base64.StdEncoding.EncodeToString(h.Sum(nil)), err
}

// WithCRC returns o with the CRC32C of the body set, reading it where it is not
// known.
func (s *Session) WithCRC(key string, body objstore.Body, o objstore.PutOptions) (objstore.PutOptions, error) {
	if o.HasCRC {
		return o, nil
	}
	crc, err := objstore.RangeCRC32C(body, 0, body.Size())
	if err != nil {
		return o, s.Classed(objstore.VerbPut, key, objstore.ErrInvalid, err)
	}
	o.CRC32C, o.HasCRC = crc, true
	return o, nil
}

// CompareSum checks what the store says it has computed; got is "" where it says
// nothing. With crc32c demanded, such a store has not verified anything.
func (s *Session) CompareSum(op objstore.Verb, key, got string, want uint32) error {
	switch {
	case !s.SumsCRC():
		return nil
	case got == "" && s.Config.Checksum == ChecksumCRC32C:
		return s.refuse(op, key, "set remote.store.checksum to md5 or sha256 for this store", errUnconfirmed)
	case got == "":
		return nil
	}
	if crc, ok := DecodeCRC(got); ok && crc != want {
		return s.Classed(op, key, objstore.ErrChecksum, fmt.Errorf("sent CRC32C %08x, the store has %08x", want, crc))
	}
	return nil
}

// Metadata keeps the CRC32C where the store will not.
func (s *Session) Metadata(o objstore.PutOptions) map[string]string {
	if !o.HasCRC || s.SumsCRC() {
		return nil
	}
	return map[string]string{CRCMetadata: EncodeCRC(o.CRC32C)}
}

// KnownCRC is the CRC32C of a whole object by its checksum header, unless that is
// a checksum of parts' checksums, or else by its metadata.
func KnownCRC(header string, composite bool, metadata string) (crc uint32, known bool) {
	if !composite {
		crc, known = DecodeCRC(header)
	}
	if !known {
		crc, known = DecodeCRC(metadata)
	}
	return crc, known
}

// ContentType is the MIME type of an upload.
func ContentType(o objstore.PutOptions) string {
	if o.ContentType == "" {
		return "application/octet-stream"
	}
	return o.ContentType
}
