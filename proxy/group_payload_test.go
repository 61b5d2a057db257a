package proxy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func prefixed(name string) (string, bool) { return "blue." + name, true }

func unprefixed(name string) (string, bool) { return strings.CutPrefix(name, "blue.") }

// subscriptionOf encodes a consumer's metadata.
func subscriptionOf(version int16, topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics, m.UserData = version, topics, []byte("user data with orders in it")
	for _, t := range topics {
		m.OwnedPartitions = append(m.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: t, Partitions: []int32{0, 2}})
	}
	m.Generation = 7
	rack := "r1"
	m.Rack = &rack
	return m.AppendTo(nil)
}

func assignmentOf(version int16, topics ...string) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	a.Version, a.UserData = version, []byte("u")
	for _, t := range topics {
		a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: t, Partitions: []int32{1, 3}})
	}
	return a.AppendTo(nil)
}

func TestPayloadsAreRenamedInEveryVersionAndBack(t *testing.T) {
	for version := int16(0); version <= 5; version++ {
		p := subscriptionOf(version, "orders", "payments")
		there := renameSubscription(p, prefixed)
		if version <= 3 && !bytes.Equal(there, subscriptionOf(version, "blue.orders", "blue.payments")) {
			t.Errorf("subscription v%d: %q", version, there)
		}
		if back := renameSubscription(there, unprefixed); !bytes.Equal(back, p) {
			t.Errorf("subscription v%d does not come back: %q", version, back)
		}
		a := assignmentOf(version, "orders", "payments")
		if got := renameAssignment(a, prefixed); !bytes.Equal(got, assignmentOf(version, "blue.orders", "blue.payments")) {
			t.Errorf("assignment v%d: %q", version, got)
		}
	}
}

func TestPayloadKeepsWhatANewerVersionAdds(t *testing.T) {
	p := append(subscriptionOf(3, "orders"), "something new"...)
	want := append(subscriptionOf(3, "blue.orders"), "something new"...)
	if got := renameSubscription(p, prefixed); !bytes.Equal(got, want) {
		t.Fatalf("%q", got)
	}
}

func TestPayloadLeavesOutTopicsWithoutAName(t *testing.T) {
	p := subscriptionOf(1, "blue.orders", "other", "blue.payments")
	if got, want := renameSubscription(p, unprefixed), subscriptionOf(1, "orders", "payments"); !bytes.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
}

func TestPayloadThatCannotBeReadIsLeftAlone(t *testing.T) {
	whole := subscriptionOf(1, "orders")
	for n := range whole {
		cut := whole[:n]
		got := renameSubscription(cut, prefixed)
		if !bytes.Equal(got, cut) && !bytes.Contains(got, []byte("blue.orders")) {
			t.Fatalf("cut at %d: %q became %q", n, cut, got)
		}
	}
}

func FuzzRenamePayload(f *testing.F) {
	f.Add(subscriptionOf(3, "orders"))
	f.Add(assignmentOf(0, "orders"))
	f.Add([]byte{0, 1, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, p []byte) {
		same := func(s string) (string, bool) { return s, true }
		if got := renameSubscription(p, same); !bytes.Equal(got, p) {
			t.Fatalf("subscription %x became %x under the same names", p, got)
		}
		if got := renameAssignment(p, same); !bytes.Equal(got, p) {
			t.Fatalf("assignment %x became %x under the same names", p, got)
		}
		if got := renameSubscription(p, prefixed); len(got) > 4*len(p)+8 {
			t.Fatalf("%d bytes became %d", len(p), len(got))
		}
	})
}

func FuzzDecodeOwnAnswer(f *testing.F) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version = 5
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	resp.Groups = []kmsg.DescribeGroupsResponseGroup{{Group: "g", Members: []kmsg.DescribeGroupsResponseGroupMember{{MemberID: "m"}}}}
	f.Add(append([]byte{0}, resp.AppendTo(nil)...))
	f.Add([]byte{1, 5, 3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = decodeAnswer(req, body)
	})
}
