package background

// Do runs f on a thread that gives way, and returns once it has.
func Do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		Enter()
		f()
	}()
	<-done
}
