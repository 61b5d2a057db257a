package translate_test

import (
	"fmt"

	"github.com/switchback-proxy/switchback/translate"
)

// The map of a standby: the source's log starts at 100, a transaction marker sits at 150, our fence marker at physical 50.
func ExampleMap() {
	m := translate.NewMap(100)
	m, _ = m.AppendMirrored(100, 0, 50)
	m, _ = m.AppendMirrored(151, 51, 9)
	m, _ = m.Advance(162)        // two more markers, then the cutover
	m, _ = m.OpenNative(162, 61) // physical 60 is a marker of ours
	m, _ = m.CloseNative(200)    // 38 records and markers later: back again
	for _, v := range []translate.Virtual{100, 150, 159, 161, 199, 200, 201} {
		a := m.ToPhysical(v)
		fmt.Println(v, a.Kind, a.Physical)
	}
	for s := range m.Segments() {
		fmt.Println(s)
	}
	// Output:
	// 100 record 0
	// 150 gap 51
	// 159 record 59
	// 161 gap 61
	// 199 record 98
	// 200 end 99
	// 201 unknown -1
	// mirrored [100, 150) at 0
	// mirrored [151, 160) at 51
	// native [162, 200) at 61
}

// A journal record states what the one before lacks.
func ExampleMap_AppendTail() {
	older := translate.NewMap(0)
	older, _ = older.AppendMirrored(0, 0, 10)
	newer, _ := older.AppendMirrored(12, 11, 5)

	record := newer.AppendTail(nil, older.Frontier())
	replayed, err := older.ApplyTail(record)
	fmt.Println(replayed.Frontier(), replayed.Gaps(), err)
	// Output: 17 1 <nil>
}

// After a forced move the end of the old epoch is the start of the new era, not where replication ended.
func ExampleHistory_EndOf() {
	var h translate.History
	h = h.Append(3, 0)
	shift := translate.ShiftFor(h.Last(), 7)
	h = h.Append(shift.Show(7), 1_048_576)
	fmt.Println(h.EndOf(3, 2_000_000))
	// Output: 3 1048576 true
}

func ExampleCommitToPhysical() {
	m := translate.NewMap(100) // a partition that retention has emptied; its log start and end are 100
	logEnd := translate.Physical(1)
	fmt.Println(translate.CommitToPhysical(m, 100, logEnd))
	fmt.Println(translate.CommitToPhysical(m, 40, logEnd))
	fmt.Println(translate.CommitToPhysical(m, 101, logEnd))
	// Output:
	// 1 ok
	// 1 ok
	// 1 not yet
}
