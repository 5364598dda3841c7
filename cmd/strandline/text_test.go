package main

import (
	"os/exec"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestNamesStayOnTheirLine(t *testing.T) {
	for in, want := range map[string]string{
		"billing": "billing", "a b/ü": "a b/ü", `say "x"`: `say "x"`, "": "",
		"a\tb": `"a\tb"`, "a\nb": `"a\nb"`, "\x1b[31mred": `"\x1b[31mred"`, "\xff\xfe": `"\xff\xfe"`, "a\u202eb": `"a\u202eb"`,
	} {
		require.Equal(t, want, shown(in))
	}
}

// A command that a message gives names the group that it is about.
func TestShellWords(t *testing.T) {
	require.Equal(t, "billing-2.x", shellWord("billing-2.x"))
	require.Equal(t, "`strandline group describe 'a b' --members`", describeMembers("a b"))
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	for _, word := range []string{"a b", "it's", `a"b\c`, "$HOME `id`", "a\tb\nc", "\x1b[31m'\"red", "\xff\xfe", "~", "ü"} {
		out, err := exec.Command(shell, "-c", "printf %s "+shellWord(word)).Output()
		require.NoError(t, err, word)
		require.Equal(t, word, string(out))
		require.Equal(t, shellWord(word), shown(shellWord(word)), "it steers no terminal")
	}
}

func TestMistypedWords(t *testing.T) {
	names := []string{"list", "describe", "delete", "delete-offsets", "reset-offsets"}
	for in, want := range map[string]string{
		"descripe": "describe", "desc": "describe", "lits": "list", "reset": "reset-offsets", "delete-offset": "delete-offsets", "delet": "delete",
		"create": "", "x": "", "": "",
	} {
		require.Equal(t, want, closest(in, names), in)
	}

	for _, args := range [][]string{{"group", "descripe"}, {"grop"}, {"group", "list", "--stat", "Empty"}, {"topic", "crate"}, {"segment", "dmp"}, {"docz"}} {
		root := newRoot()
		root.SetArgs(args)
		err := root.Execute()
		code := &exitError{}
		require.ErrorAs(t, err, &code)
		require.Equal(t, exitUsage, code.code)
		require.NotContains(t, err.Error(), "docs", "hidden commands are not offered")
		if args[0] != "docz" {
			require.Contains(t, err.Error(), "did you mean", args)
		}
	}
	cmd := &cobra.Command{Use: "x"}
	cmd.Flags().Bool("execute", false, "")
	cmd.Flags().Bool("secret", false, "")
	require.NoError(t, cmd.Flags().MarkHidden("secret"))
	require.Equal(t, " (did you mean --execute?)", unknownFlag(cmd, "exceute"))
	require.Empty(t, unknownFlag(cmd, "secre"))
}
