package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Pause is a span in which nothing came. At is its start in Unix milliseconds, 0 if there is none.
type Pause struct {
	Millis int64 `json:"ms"`
	At     int64 `json:"at_ms"`
}

func (p *Pause) raise(millis, at int64) {
	if millis > p.Millis {
		*p = Pause{Millis: millis, At: at}
	}
}

// Report is the judgement over all events added so far. It is final only when every client has stopped: before, what is on its
// way counts as lost.
type Report struct {
	SentRecords  int64 `json:"sent_records"`
	AckedRecords int64 `json:"acked_records"`
	ReadRecords  int64 `json:"read_records"`

	// LostRecords were acked, or read by someone, and some reader that had to read them did not.
	LostRecords int64 `json:"lost_records"`
	// DuplicateRecords are further copies of a record in the log, as a reader that assigns itself saw them.
	DuplicateRecords int64 `json:"duplicate_records"`
	// RereadRecords were read a second time by the same reader: at the same place, or at one where the log has no copy.
	RereadRecords int64 `json:"reread_records"`
	// OutOfOrderRecords came after a record of the same partition with a higher offset, or of the same producer and
	// partition with a higher sequence; counted for each reader.
	OutOfOrderRecords int64 `json:"out_of_order_records"`
	// OffsetMismatchRecords have another place for their producer than for a reader, or for two readers.
	OffsetMismatchRecords int64 `json:"offset_mismatch_records"`
	// UnknownRecords were read or acked, but their producer's log does not say that it sent them.
	UnknownRecords int64 `json:"unknown_records"`
	// UnansweredRecords were sent, and their producer never learned what became of them.
	UnansweredRecords int64 `json:"unanswered_records"`
	// CommitsBack are commits below the one before, by the same member without a rebalance between.
	CommitsBack int64 `json:"commits_back"`
	// AppErrors are failed deliveries and whatever else an application saw.
	AppErrors int64 `json:"app_errors"`
	// Rebalances within the marked window, over all groups.
	Rebalances int64 `json:"rebalances"`
	// Unstopped are clients without an orderly end.
	Unstopped []string `json:"unstopped"`

	// LongestAckPause is the longest span in which no producer got an ack; LongestReadPause, no reader a record.
	LongestAckPause  Pause `json:"longest_ack_pause"`
	LongestReadPause Pause `json:"longest_read_pause"`

	Producers []ProducerReport `json:"producers"`
	Readers   []ReaderReport   `json:"readers"`

	// Examples of faults, by fault, a few of each.
	Examples map[string][]string `json:"examples"`
}

// ProducerReport is about one producer.
type ProducerReport struct {
	Name              string `json:"name"`
	SentRecords       int64  `json:"sent_records"`
	AckedRecords      int64  `json:"acked_records"`
	FailedRecords     int64  `json:"failed_records"`
	UnansweredRecords int64  `json:"unanswered_records"`
	// LongestPause without an ack; LongestPartitionPause between two acks of one partition; SlowestAck from sent to acked.
	LongestPause          Pause `json:"longest_pause"`
	LongestPartitionPause Pause `json:"longest_partition_pause"`
	SlowestAck            Pause `json:"slowest_ack"`
}

// ReaderReport is about one reader: a group, or a client that assigns itself.
type ReaderReport struct {
	Name              string `json:"name"`
	Group             bool   `json:"group"`
	Members           int    `json:"members"`
	ReadRecords       int64  `json:"read_records"`
	MissedRecords     int64  `json:"missed_records"`
	RereadRecords     int64  `json:"reread_records"`
	OutOfOrderRecords int64  `json:"out_of_order_records"`
	// Rebalances counts callbacks within the window: the end of a rebalance (assigned), else what was taken away without one.
	Rebalances int64 `json:"rebalances"`
	Assigned   int64 `json:"assigned"`
	Revoked    int64 `json:"revoked"`
	Lost       int64 `json:"lost"`
	// LongestPause is the longest of any of its members.
	LongestPause Pause `json:"longest_pause"`
}

// OK says that nothing at all went wrong. Pauses are not judged.
func (r *Report) OK() bool {
	return r.LostRecords == 0 && r.DuplicateRecords == 0 && r.RereadRecords == 0 && r.OutOfOrderRecords == 0 &&
		r.OffsetMismatchRecords == 0 && r.UnknownRecords == 0 && r.UnansweredRecords == 0 && r.CommitsBack == 0 &&
		r.AppErrors == 0 && r.Rebalances == 0 && len(r.Unstopped) == 0
}

// JSON is the report for machines.
func (r *Report) JSON() []byte {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		panic(err) // numbers, strings, slices and maps of them: cannot fail
	}
	return b
}

// String is the report for people.
func (r *Report) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "sent %d\tacked %d\tread %d\n\n", r.SentRecords, r.AckedRecords, r.ReadRecords)
	for _, line := range r.faults() {
		fmt.Fprintf(w, "%s\t%d\n", line.name, line.count)
	}
	fmt.Fprintf(w, "\nlongest pause in acks, all producers\t%s\nlongest pause in reads, all readers\t%s\n", r.LongestAckPause, r.LongestReadPause)
	fmt.Fprint(w, "\nproducer\tsent\tacked\tfailed\tpause\tpause of a partition\tslowest ack\n")
	for _, p := range r.Producers {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%s\t%s\n", p.Name, p.SentRecords, p.AckedRecords, p.FailedRecords, p.LongestPause, p.LongestPartitionPause, p.SlowestAck)
	}
	fmt.Fprint(w, "\nreader\tmembers\tread\tmissed\tre-read\tout of order\trebalances\tpause\n")
	for _, rd := range r.Readers {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", rd.Name, rd.Members, rd.ReadRecords, rd.MissedRecords, rd.RereadRecords, rd.OutOfOrderRecords, rd.Rebalances, rd.LongestPause)
	}
	w.Flush()
	for _, fault := range slices.Sorted(maps.Keys(r.Examples)) {
		for _, text := range r.Examples[fault] {
			fmt.Fprintf(&b, "%s: %s\n", fault, text)
		}
	}
	return b.String()
}

type faultLine struct {
	name  string
	count int64
}

func (r *Report) faults() []faultLine {
	return []faultLine{
		{"lost", r.LostRecords},
		{"duplicates in the log", r.DuplicateRecords},
		{"re-read", r.RereadRecords},
		{"out of order", r.OutOfOrderRecords},
		{"offset mismatches", r.OffsetMismatchRecords},
		{"unknown records", r.UnknownRecords},
		{"unanswered records", r.UnansweredRecords},
		{"commits that went back", r.CommitsBack},
		{"application errors", r.AppErrors},
		{"rebalances", r.Rebalances},
		{"clients without orderly end", int64(len(r.Unstopped))},
	}
}

// String gives the length, and when it began.
func (p Pause) String() string {
	if p.Millis == 0 {
		return "-"
	}
	return fmt.Sprintf("%d ms at %s", p.Millis, time.UnixMilli(p.At).UTC().Format("15:04:05.000"))
}
