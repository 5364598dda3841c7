package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"strandline/metadata/config"
)

// traced is an error that prints more with %+v, as those of some libraries do.
type traced struct{}

func (traced) Error() string { return "no space left" }

func (t traced) Format(s fmt.State, verb rune) {
	_, _ = fmt.Fprint(s, t.Error())
	if verb == 'v' && s.Flag('+') {
		_, _ = fmt.Fprint(s, "\nstack trace:\n\tmain.main")
	}
}

func TestErrorsInTheLogAreTheirText(t *testing.T) {
	for format, want := range map[string]string{
		"text": ` err="no space left" wrapped="writing: no space left" none=<nil> n=1` + "\n",
		"json": `"err":"no space left","wrapped":"writing: no space left","none":null,"n":1}` + "\n",
	} {
		var out bytes.Buffer
		log := newLogger(config.Broker{LogLevel: "info", LogFormat: format}, &out)
		log.Info("failed", "err", traced{}, "wrapped", fmt.Errorf("writing: %w", traced{}), "none", error(nil), "n", 1)
		require.True(t, bytes.HasSuffix(out.Bytes(), []byte(want)), out.String())
		out.Reset()
		log.With(slog.Any("err", traced{})).WithGroup("g").Error("failed", "err", traced{})
		require.NotContains(t, out.String(), "stack trace")
	}
}
