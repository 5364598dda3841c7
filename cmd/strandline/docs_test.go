package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesAreWhatTheCodeSays(t *testing.T) {
	for _, p := range docsPages() {
		t.Run(p.name, func(t *testing.T) {
			want, err := p.text()
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(p.file)))
			require.NoError(t, err)
			require.Equal(t, want, string(got), "%s is out of date: run make docs", p.file)
		})
	}
}
