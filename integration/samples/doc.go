// Package samples opens data directories and buckets that earlier builds made.
//
// Each folder of testdata is one sample: data.tar.gz (log, metadata and cache
// directories with the bucket of a directory store beside them) and
// expected.json (what a client read from it before it was packed). A sample is
// never changed; `SAMPLE=NAME go test ./integration/samples -run
// TestMakeSample` adds those of the present build.
package samples
