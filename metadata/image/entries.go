package image

import "iter"

// Entry is a stored piece of an image. Keys start with a letter and sort by
// kind of thing.
type Entry struct{ Key, Value []byte }

// Entries gives the whole image as entries, sorted by key.
func (i *Image) Entries() iter.Seq[Entry] { return func(func(Entry) bool) {} }

// Entries gives what to store and what to delete so that the stored entries of
// From become those of To.
func (d *Delta) Entries() (put []Entry, del [][]byte) { return nil, nil }

// Load builds the image from its entries, in any order.
func Load(entries iter.Seq2[Entry, error]) (*Image, error) { return Empty(), nil }
