package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"strandline/broker/segment"
	"strandline/metadata/disk"
)

func newSegment() *cobra.Command {
	cmd := parentOf(&cobra.Command{Use: "segment", Short: "Look into files of a log directory"})
	var deep bool
	var output string
	dump := &cobra.Command{
		Use:   "dump FILE...",
		Short: "Print what is in .log, index, snapshot and checkpoint files, ours or Apache Kafka's",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("want at least one file, as in `%s`", cmd.UseLine())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usagef("-o %s: want text or json", output)
			}
			var errs []error
			for _, name := range args {
				if len(args) > 1 && output == "text" {
					fmt.Printf("Dumping %s\n", name)
				}
				errs = append(errs, dumpFile(name, deep, output == "json"))
			}
			return errors.Join(errs...)
		},
	}
	dump.Flags().BoolVar(&deep, "deep", false, "print records too, and compare indexes with their log")
	dump.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.AddCommand(dump)
	return cmd
}

func dumpFile(name string, deep, asJSON bool) error {
	out := json.NewEncoder(os.Stdout)
	return segment.Dump(disk.OS(), name, deep, func(i segment.Item) error {
		if !asJSON {
			_, err := fmt.Println(i)
			return err
		}
		fields := map[string]any{}
		for _, f := range i.Fields() {
			fields[f.Name] = f.Value
		}
		if i.Record != nil {
			fields["key"], fields["payload"] = nullable(i.Record.Key), nullable(i.Record.Value)
		}
		return out.Encode(fields)
	})
}

// nullable is printable, or JSON's null, which is not the text "null".
func nullable(b []byte) any {
	if b == nil {
		return nil
	}
	return printable(b)
}

// printable shows bytes as text where they are, else in base64.
func printable(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case utf8.Valid(b):
		return string(b)
	default:
		return "base64:" + base64.StdEncoding.EncodeToString(b)
	}
}
