package serve

// Exit codes of the server.
const (
	ExitFailed    = 1   // failure at run time
	ExitConfig    = 2   // bad flag or config, disk untouched
	ExitDirectory = 3   // a directory that is locked, foreign, newer or missing
	ExitListen    = 4   // cannot listen
	ExitSignal    = 130 // second signal
)

// ExitError ends the server with a code and a sentence.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string { return e.Err.Error() }
func (e *ExitError) Unwrap() error { return e.Err }
