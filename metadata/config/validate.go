package config

// TopicCheck is what a change of a topic's overrides is judged against.
type TopicCheck struct {
	// Layers holds the overrides as they would be after the change.
	Layers Layers
	// WasTiered tells whether the tier was on before; false for a new topic.
	WasTiered bool
	// TierAvailable tells whether a store is configured at all.
	TierAvailable bool
}

// ValidateTopic checks a whole set of topic overrides. The error's message is
// Kafka's.
func ValidateTopic(c TopicCheck) error { return nil }

// TopicWarnings tells which overrides have no effect here.
func TopicWarnings(overrides map[string]string) []Warning { return nil }

// ValidateDynamicBroker checks the overrides of one broker, or of all where
// cluster is set, as they would be after the change: set and removed keys in
// changed.
func ValidateDynamicBroker(overrides map[string]string, changed []string, cluster bool) error {
	return nil
}

// TierOf tells whether a new topic with these overrides is tiered by default:
// byDefault says what log.remote.storage.enable is.
func TierOf(l Layers, byDefault bool) bool { return false }
