package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	newestGroupMetadata  = 4
	writtenGroupMetadata = 3
)

// Metadata is what the log keeps of a classic group: one generation of it.
type Metadata struct {
	ProtocolType string
	Generation   int32
	// Protocol is what the members follow, Leader one of them; "" is none.
	Protocol string
	Leader   string
	// StateTime is when the group came into its state; zero where the record is
	// of a version that does not say.
	StateTime time.Time
	Members   []MemberMetadata
}

// MemberMetadata is a member of a Metadata.
type MemberMetadata struct {
	MemberID   string
	InstanceID string
	Client     Client
	// RebalanceTimeout is SessionTimeout where the record does not say.
	RebalanceTimeout time.Duration
	SessionTimeout   time.Duration
	// Subscription is the metadata of the chosen protocol.
	Subscription []byte
	Assignment   []byte
}

// MetadataKey is the key of the record of a classic group.
func MetadataKey(group string) RecordKey { return RecordKey{Type: GroupMetadataRecord, Group: group} }

// MetadataRecord is the record of a classic group: version 3 of Apache Kafka's
// schema. Times are kept to the millisecond.
func MetadataRecord(group string, m Metadata) Record {
	v := kmsg.GroupMetadataValue{
		Version:               writtenGroupMetadata,
		ProtocolType:          m.ProtocolType,
		Generation:            m.Generation,
		Protocol:              orNil(m.Protocol),
		Leader:                orNil(m.Leader),
		CurrentStateTimestamp: -1,
	}
	if !m.StateTime.IsZero() {
		v.CurrentStateTimestamp = m.StateTime.UnixMilli()
	}
	for _, member := range m.Members {
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID:               member.MemberID,
			InstanceID:             orNil(member.InstanceID),
			ClientID:               member.Client.ID,
			ClientHost:             member.Client.Host,
			RebalanceTimeoutMillis: int32(member.RebalanceTimeout.Milliseconds()),
			SessionTimeoutMillis:   int32(member.SessionTimeout.Milliseconds()),
			Subscription:           member.Subscription,
			Assignment:             member.Assignment,
		})
	}
	return Record{Key: MetadataKey(group).Append(nil), Value: v.AppendTo(nil)}
}

// MetadataTombstone deletes a classic group.
func MetadataTombstone(group string) Record { return Record{Key: MetadataKey(group).Append(nil)} }

// ParseMetadata reads the value of a classic group's record, of any version; it
// keeps no part of value. Errors: ErrUnknownRecord, ErrMalformedRecord.
func ParseMetadata(value []byte) (Metadata, error) {
	var v kmsg.GroupMetadataValue
	if err := parseValue("group metadata", value, newestGroupMetadata, v.ReadFrom); err != nil {
		return Metadata{}, err
	}
	m := Metadata{ProtocolType: v.ProtocolType, Generation: v.Generation, Protocol: orEmpty(v.Protocol), Leader: orEmpty(v.Leader)}
	if v.CurrentStateTimestamp >= 0 {
		m.StateTime = time.UnixMilli(v.CurrentStateTimestamp)
	}
	for _, member := range v.Members {
		rebalance := member.RebalanceTimeoutMillis
		if rebalance < 0 {
			rebalance = member.SessionTimeoutMillis
		}
		m.Members = append(m.Members, MemberMetadata{
			MemberID:         member.MemberID,
			InstanceID:       orEmpty(member.InstanceID),
			Client:           Client{ID: member.ClientID, Host: member.ClientHost},
			RebalanceTimeout: time.Duration(rebalance) * time.Millisecond,
			SessionTimeout:   time.Duration(member.SessionTimeoutMillis) * time.Millisecond,
			Subscription:     member.Subscription,
			Assignment:       member.Assignment,
		})
	}
	return m, nil
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
