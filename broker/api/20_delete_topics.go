package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"strandline/metadata/cluster"
	"strandline/metadata/request"
)

// deleteTopics deletes topics, each on its own.
//
// Versions: up to 5 topics are named; 6 names each by name or id, and answers
// with both.
func (h *Handler) deleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	ctx, cancel := h.withTimeout(ctx, req.TimeoutMillis)
	defer cancel()
	img := h.cfg.Cluster.Image()
	resp := kmsg.NewPtrDeleteTopicsResponse()
	var (
		asked []request.TopicRef
		at    []int
		seen  = map[request.TopicRef]int{} // to the index in the response
	)
	for _, t := range namedTopics(req) {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		ref := request.TopicRef{ID: cluster.TopicID(t.TopicID)}
		if t.Topic != nil {
			ref.Name = *t.Topic
		}
		bad := h.checkDelete(req.Version, t, ref)
		if bad.code == codeNone {
			if first, twice := seen[ref]; twice {
				refuseTwice(&resp.Topics[first], ref, "Duplicate topic "+map[bool]string{true: "name.", false: "id."}[ref.Name != ""])
				asked, at = without(asked, at, first)
				continue
			}
			found, known := img.Topic(ref.Name)
			if ref.Name == "" {
				found, known = img.TopicByID(ref.ID)
			}
			if known {
				// The same topic by its other name.
				other := request.TopicRef{Name: found.Name}
				if ref.Name != "" {
					other = request.TopicRef{ID: found.ID}
				}
				if first, twice := seen[other]; twice {
					resp.Topics[first].Topic, resp.Topics[first].TopicID = &found.Name, found.ID
					setDeleted(&resp.Topics[first], refused(codeInvalidRequest, "The provided topic name maps to an ID that was already supplied."))
					asked, at = without(asked, at, first)
					continue
				}
				out.Topic, out.TopicID = &found.Name, found.ID
			}
			seen[ref] = len(resp.Topics)
			asked, at = append(asked, ref), append(at, len(resp.Topics))
		}
		setDeleted(&out, bad)
		resp.Topics = append(resp.Topics, out)
	}
	if len(asked) == 0 {
		return resp
	}
	for i, err := range h.outcomes(ctx, request.DeleteTopics{Topics: asked}, len(asked)) {
		out := &resp.Topics[at[i]]
		o := outcomeOf(err)
		switch o.code {
		case codeNone:
			continue
		case codeUnknownTopicOrPartition:
			o = refused(o.code, textUnknownTopic)
		case codeUnknownTopicID:
			o = refused(o.code, textUnknownTopicID)
		}
		setDeleted(out, o)
		// What is not there has only what the client called it.
		out.TopicID = asked[i].ID
		if asked[i].Name == "" {
			out.Topic = nil
		}
	}
	return resp
}

func namedTopics(req *kmsg.DeleteTopicsRequest) []kmsg.DeleteTopicsRequestTopic {
	if req.Version >= 6 {
		return req.Topics
	}
	topics := make([]kmsg.DeleteTopicsRequestTopic, 0, len(req.TopicNames))
	for i := range req.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &req.TopicNames[i]
		topics = append(topics, t)
	}
	return topics
}

func (h *Handler) checkDelete(version int16, t kmsg.DeleteTopicsRequestTopic, ref request.TopicRef) outcome {
	switch {
	case !h.cfg.Broker.DeleteTopicEnable && version < 3:
		return refused(codeInvalidRequest, textDeletionOff)
	case !h.cfg.Broker.DeleteTopicEnable:
		return refused(codeTopicDeletionDisabled, textDeletionOff)
	case t.Topic != nil && !ref.ID.IsZero():
		return refused(codeInvalidRequest, "You may not specify both topic name and topic id.")
	case t.Topic == nil && ref.ID.IsZero():
		return refused(codeInvalidRequest, "Neither topic name nor id were specified.")
	case t.Topic != nil && ref.Name == "":
		return refused(codeUnknownTopicOrPartition, textUnknownTopic)
	}
	return outcome{}
}

func setDeleted(out *kmsg.DeleteTopicsResponseTopic, o outcome) {
	out.ErrorCode, out.ErrorMessage = o.code, o.text
}

// refuseTwice answers a topic that is named twice, as the client called it.
func refuseTwice(out *kmsg.DeleteTopicsResponseTopic, ref request.TopicRef, text string) {
	setDeleted(out, refused(codeInvalidRequest, text))
	out.TopicID = ref.ID
	if ref.Name == "" {
		out.Topic = nil
	}
}

// without drops the one that answers to index i of the response.
func without(asked []request.TopicRef, at []int, i int) ([]request.TopicRef, []int) {
	for k := range at {
		if at[k] == i {
			return append(asked[:k], asked[k+1:]...), append(at[:k], at[k+1:]...)
		}
	}
	return asked, at
}
