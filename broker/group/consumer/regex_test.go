package consumer

import (
	"regexp/syntax"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"strandline/broker/group"
)

// What an expression costs is bounded before it is compiled, and an error repeats
// little of it.
func TestExpressionsAreBounded(t *testing.T) {
	names := make([]string, 200)
	for i := range names {
		names[i] = strings.Repeat("n", 40)
	}
	for name, expression := range map[string]string{
		"optional":  strings.Repeat("(?:a?)", 6000),
		"repeated":  strings.Repeat(`(?i)\pL{1,1000}`, 1000),
		"nested":    "((a{1,30}){1,30}){1,30}" + strings.Repeat("b", 10_000),
		"classes":   strings.Repeat(`[\pL\pN\pS]`, 2000),
		"unclosed":  "(" + strings.Repeat("a", 5000),
		"too deep":  strings.Repeat("(", 2000) + strings.Repeat(")", 2000),
		"many more": strings.Repeat("(?:.{0,1000})", 1600),
	} {
		g := New("g")
		fx := g.Heartbeat(time.Now(), Env{Config: Config{MaxSize: 10, Assignors: []string{"range"}}}, group.ConsumerHeartbeatRequest{
			MemberID: "m", RebalanceTimeout: time.Second, SubscribedRegex: &expression, Owned: []group.TopicPartitions{},
		})
		require.ErrorIs(t, fx.Replies[0].Err, group.ErrInvalidRegex, name)
		require.Less(t, len(fx.Replies[0].Err.Error()), 1000, name)
		require.True(t, g.Empty(), name)
	}
	for name, expression := range map[string]string{
		"names":   strings.Join(names, "|"),
		"letters": `\pL+[\pN\pS]*`,
		"usual":   `^(?:orders|payments)-[a-z0-9]{1,64}(?:-dlq)?$`,
	} {
		_, err := compile(expression)
		require.NoError(t, err, name)
	}
}

// What is counted is about what an expression compiles to.
func TestInstructionsAreCounted(t *testing.T) {
	for _, expression := range []string{"", "abc", "a|bc|[d-f]+", "(a{2,5}){3,7}x*", "(?:ab?){1,50}", "a{3,}b{0,100}", `(?i)k.*[^a]\z`} {
		re, err := syntax.Parse(expression, syntax.Perl)
		require.NoError(t, err)
		counted := instructions(re)
		prog, err := syntax.Compile(re.Simplify())
		require.NoError(t, err)
		require.LessOrEqual(t, len(prog.Inst), 2*counted+4, expression)
		require.LessOrEqual(t, counted, 2*len(prog.Inst), expression)
	}
}
