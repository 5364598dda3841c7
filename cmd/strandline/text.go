package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// shown is a name that any client may have chosen, on one line of text: quoted as
// in Go where it has bytes that would break the line or steer a terminal.
func shown(name string) string {
	if utf8.ValidString(name) && strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return name
	}
	return strconv.Quote(name)
}

// shellWord is a word as a shell takes it.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("-_.:@/+,", r)
	}
	switch {
	case shown(word) != word:
		quoted := strings.ReplaceAll(strconv.Quote(word), `\"`, `"`)
		return "$'" + strings.ReplaceAll(quoted[1:len(quoted)-1], "'", `\'`) + "'"
	case word == "" || strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }):
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// closest is the candidate that a mistyped word was probably meant to be, "" if
// none is near: the one that it begins, or is at most a third of its letters away.
func closest(word string, candidates []string) string {
	best, bound := "", len(word)/3+1
	for _, c := range candidates {
		d := edits(word, c)
		if len(word) > 2 && strings.HasPrefix(c, word) {
			d = 0
		}
		if d < bound {
			best, bound = c, d
		}
	}
	return best
}

// edits counts the letters to insert, drop, replace or swap with their neighbour
// that lead from a to b.
func edits(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			same := 1
			if a[i] == b[j] {
				same = 0
			}
			next[j+1] = min(row[j]+same, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// parentOf makes the command that only has others below it: alone it shows its
// help.
func parentOf(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return cmd.Help()
	}
	return cmd
}

func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	hint := ""
	if near := closest(name, names); near != "" {
		hint = " (did you mean `" + parent.CommandPath() + " " + near + "`?)"
	}
	return usagef("unknown command %q for `%s`%s; `%s --help` lists them", name, parent.CommandPath(), hint, parent.CommandPath())
}

// unknownFlag says which flag of a command was probably meant, "" where that is
// not clear.
func unknownFlag(cmd *cobra.Command, name string) string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := closest(name, names); near != "" {
		return " (did you mean --" + near + "?)"
	}
	return ""
}
