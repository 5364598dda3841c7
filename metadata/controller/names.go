package controller

import (
	"strings"

	"strandline/metadata/image"
	"strandline/metadata/request"
)

// topicNameMax is the longest topic name.
const topicNameMax = 249

// clusterMetadataTopic is Kafka's name for its own metadata log: no client may
// have a topic of that name.
const clusterMetadataTopic = "__cluster_metadata"

// ValidateTopicName refuses a name that no topic can have, with Kafka's words.
func ValidateTopicName(name string) error {
	bad := func(why string) error {
		return request.Refuse(request.ErrInvalidTopicName, "Topic name is invalid: %s", why)
	}
	switch {
	case name == "":
		return bad("the empty string is not allowed")
	case name == ".":
		return bad("'.' is not allowed")
	case name == "..":
		return bad("'..' is not allowed")
	case len(name) > topicNameMax:
		return bad("the length of '" + name + "' is longer than the max allowed length 249")
	}
	for i := range len(name) {
		ch := name[i]
		legal := ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || ch == '.' || ch == '_' || ch == '-'
		if !legal {
			return bad("'" + name + "' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")
		}
	}
	return nil
}

// collisionVariantsMax bounds how many names are looked up one by one; beyond
// it all topics are looked at.
const collisionVariantsMax = 1 << 8

// collides finds a topic whose name differs from name only in '.' and '_':
// metric names cannot tell the two apart.
func collides(img *image.Image, name string) (string, bool) {
	var at []int
	for i := range len(name) {
		if name[i] == '.' || name[i] == '_' {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return "", false
	}
	if len(at) > 8 || 1<<len(at) > max(collisionVariantsMax, img.TopicCount()) {
		unified := strings.ReplaceAll(name, ".", "_")
		for t := range img.Topics() {
			if t.Name != name && strings.ReplaceAll(t.Name, ".", "_") == unified {
				return t.Name, true
			}
		}
		return "", false
	}
	variant := []byte(name)
	for mask := range 1 << len(at) {
		for n, i := range at {
			variant[i] = '.'
			if mask>>n&1 == 1 {
				variant[i] = '_'
			}
		}
		if string(variant) == name {
			continue
		}
		if t, ok := img.Topic(string(variant)); ok {
			return t.Name, true
		}
	}
	return "", false
}
