package groupformat

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/integration/kit"
)

const golden = "../../broker/group/consumer/testdata/kafka.golden"

// The golden file of package consumer is what Apache Kafka's classes say. With
// STRANDLINE_RECORD=1 it is written anew.
func TestGoldenFileIsApacheKafkas(t *testing.T) {
	java := kit.JavaProgram(t, "testdata/Golden.java")
	var said strings.Builder
	for line := range java.Lines() {
		said.WriteString(line + "\n")
	}
	require.NotEmpty(t, said.String())
	if os.Getenv("STRANDLINE_RECORD") == "1" {
		require.NoError(t, os.WriteFile(golden, []byte(said.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(said.String(), "\n"))
}
