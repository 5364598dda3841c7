package main

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"strandline/metadata/config"
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
// none is near: the one that it begins, or one that is like it.
func closest(word string, candidates []string) string {
	if i := slices.IndexFunc(candidates, func(c string) bool { return len(word) > 2 && strings.HasPrefix(c, word) }); i >= 0 {
		return candidates[i]
	}
	return config.NearestOf(word, candidates)
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
