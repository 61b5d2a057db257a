// Package wire moves Kafka frames: lengths, headers, buffers, and record bytes that need not be looked at.
//
//	in := wire.NewReader(broker, pool)     // net.Conn, or any io.Reader; NewBytesReader for bytes in memory
//	out := wire.NewWriter(client, pool)
//	size, err := in.Next(limit)            // the length, checked before anything is allocated for it
//	out.Begin(size)                        // the answer will be as long
//	t := wire.Tee{In: in, Out: out}
//	t.Int32()                              // correlation id: read, passed on
//	for range t.ArrayLen() {               // …
//		offset := in.Int64()           // read
//		out.PutInt64(offset + shift)   // and changed
//	}
//	in.CopyN(out, in.Remaining())          // spliced inside the kernel between plain TCP connections
//	err = errors.Join(in.Err(), out.End(), out.Flush())
//
// Errors stick: after the first one a Reader returns zeros and empty views, a Writer ignores what it is given. So a walker
// checks once, at its end. Which of the two has the error says which connection failed; what was read from the other is
// still counted exactly, so the rest of a frame can be skipped and the connection used on.
//
// Views (Peek, String, …) are valid until the next call of the same Reader. A Reader and a Writer belong to one goroutine
// each; a Pool may be shared.
//
// Not done here: message bodies (kmsg and the proxy's walkers), deadlines (set on the connection by its owner; a read that
// a deadline broke between frames may be tried again), TLS (a *tls.Conn is just not spliced).
package wire
