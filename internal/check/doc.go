// Package check is the one checker of what clients sent and what clients read. The demo, the rehearsal and the tests use it.
//
// It is fed with the clients' own logs, and from nothing else does it conclude: each record carries (producer, sequence), so a
// loss, a duplicate, a re-read or a reorder is counted exactly, never estimated.
//
//	c := check.New(check.Config{Readers: []check.Reader{{Name: "billing", Topics: []string{"orders"}}}})
//	c.AddFile("producer-1.log")     // or in process: c.Add(check.Event{Kind: check.Acked, …})
//	c.AddFile("consumer-1.log")
//	report := c.Report()
//	fmt.Print(report)
//	if !report.OK() { … }
//
// # Log format
//
// One event a line, fields separated by single spaces, times in Unix milliseconds. Names of clients, groups, topics and
// producers hold no space. The last field of failed and error runs to the end of the line.
//
//	sent      MS PRODUCER SEQ TOPIC PARTITION
//	acked     MS PRODUCER SEQ TOPIC PARTITION OFFSET
//	failed    MS PRODUCER SEQ TOPIC PARTITION TEXT      the application was told that the record failed
//	read      MS CLIENT GROUP TOPIC PARTITION OFFSET PRODUCER SEQ
//	committed MS CLIENT GROUP TOPIC PARTITION OFFSET
//	assigned  MS CLIENT GROUP COUNT                     partitions given (a rebalance ended here)
//	revoked   MS CLIENT GROUP COUNT
//	lost      MS CLIENT GROUP COUNT
//	error     MS CLIENT TEXT                            anything else that the application saw
//	stopping  MS CLIENT                                 told to stop; its rebalances from here on are its own
//	stopped   MS CLIENT                                 stopped in order: flushed and closed
//	mark      MS start|end                              the window in which rebalances and pauses count;
//	                                                    what is read again before it is no fault: groups assemble there
//
// GROUP is "-" for a reader that assigns its partitions itself; its CLIENT is then the name of the reader. All members of a
// group together are one reader, with the name of the group.
//
// A record's key and value carry its identity as PRODUCER/SEQ; the value may go on after a space (Identity, ParseIdentity).
//
// # Order of feeding
//
// The events of one client must come in the order in which it wrote them. The logs of different clients may come one after
// the other or mixed, in any order. Marks should come first: re-reads and two of the pauses (of a partition, of the slowest ack)
// look at the window as known at that moment; all else is judged at the end.
//
// # Memory
//
// About 32 bytes per record sent, a bit per record and reader, a kilobyte per 8 s and client; so some million records fit in a
// few hundred MB. All methods of Checker may be called from several goroutines.
package check
