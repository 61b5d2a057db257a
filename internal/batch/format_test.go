package batch

import "testing"

func TestFormatsBefore011HaveNoProducerIDs(t *testing.T) {
	for version, old := range map[string]bool{
		"0.8.2": true, "0.9.0": true, "0.10.2-IV0": true, "0.11.0": false, "0.11.0-IV2": false, "1.0-IV0": false, "2.8-IV1": false,
		"3.0-IV1": false, "": false, "none": false,
	} {
		if OldFormat(version) != old {
			t.Errorf("%q: %v", version, !old)
		}
	}
}
