package batch

import "fmt"

// Kafka before 3.0 stores each topic in a message format of choice, and brokers have a default for it. What was written before
// 0.11 has no producer ids and no control batches: there is nothing to fence there.
const (
	FormatConfig       = "message.format.version" // of a topic
	BrokerFormatConfig = "log.message.format.version"
	FirstFormat        = "0.11.0" // the first with producer ids
)

// OldFormat says whether a format, as configs name it, has no producer ids; false if it is not known.
func OldFormat(version string) bool { return Below(version, 0, 11) }

// Below compares a version as Kafka's configs name it, such as 0.10.2 or 2.8-IV1; false if it is none.
func Below(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a < major || a == major && b < minor
}
