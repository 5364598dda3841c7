package consumer

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"time"

	"strandline/broker/group"
)

// regexRefreshMin is the least time from one matching of all expressions of a
// group to the next, however often topics are created.
const regexRefreshMin = 10 * time.Second

// expressionShown is how much of an expression an error repeats, in characters.
const expressionShown = 200

// checkRegex refuses an expression that is none. Those that a member has already
// were looked at before.
func (e *event) checkRegex(expression string) error {
	if expression == "" || e.regexMembers[expression] > 0 {
		return nil
	}
	if _, err := compile(expression); err != nil {
		if bad := (*syntax.Error)(nil); errors.As(err, &bad) {
			err = errors.New(string(bad.Code)) // it repeats the expression
		}
		return fmt.Errorf("%w: %.*q: %v", group.ErrInvalidRegex, expressionShown, expression, err)
	}
	return nil
}

// refreshRegexes matches the expressions that were not matched yet, and the
// others where topics were created since, or long ago, and tells whether any
// matches other topics than before. It deletes what is known of left, where no
// member has that expression any more.
func (e *event) refreshRegexes(left string) (changed bool) {
	e.dropRegex(left)
	if len(e.regexMembers) == 0 {
		return false
	}
	var due []string
	all := e.regexesAreDue()
	for _, expression := range sortedKeys(e.regexMembers) {
		if _, ok := e.regexes[expression]; !ok || all {
			due = append(due, expression)
		}
	}
	if len(due) == 0 {
		return false
	}
	matched := match(e.Topics, due)
	for _, expression := range due {
		next := regexValue{topics: matched[expression], version: e.Topics.Version(), at: inMillis(e.now)}
		changed = changed || !slices.Equal(e.regexes[expression].topics, next.topics)
		e.put(kindRegex, expression, next)
	}
	return changed
}

// dropRegex deletes what is known of an expression that no member has.
func (e *event) dropRegex(expression string) {
	if _, ok := e.regexes[expression]; ok && e.regexMembers[expression] == 0 {
		e.put(kindRegex, expression, nil)
	}
}

// regexesAreDue tells whether what the expressions matched is to be looked at
// again.
func (e *event) regexesAreDue() bool {
	for _, v := range e.regexes {
		if e.now.Before(v.at.Add(regexRefreshMin)) {
			continue
		}
		if v.version < e.Topics.CreatedVersion() || !e.now.Before(v.at.Add(e.Config.RegexRefreshInterval)) {
			return true
		}
	}
	return false
}
