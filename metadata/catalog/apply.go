package catalog

// Apply judges one event against a partition and gives what to store. It reads
// through r and changes nothing. A refused event answers one of the sentinels
// of package request; any other error comes from r.
func Apply(ctx Context, sum Summary, r Reader, ev Event) (Edit, error) {
	return Edit{}, nil
}
