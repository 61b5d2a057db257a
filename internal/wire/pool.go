package wire

import "sync"

// BufferSize is the size in bytes of the buffer of a Reader and of a Writer: a request with one batch of the default size, 16 KiB, fits
// and is read at once. A Reader reads ahead at most this much, so of a large answer at most this much passes through user space
// before splicing begins.
const BufferSize = 20 << 10

// maxKeptBytes is the largest buffer that a pool takes back: a request of producers with batches of 1 MiB, the usual limit, and
// what a size class adds.
const maxKeptBytes = 2<<20 + 64<<10

// Pool lends buffers, and pipes to splice through. Safe for use by many goroutines. The zero value is ready.
type Pool struct {
	fixed  sync.Pool // *[BufferSize]byte
	frames sync.Pool // *Buffer
	pipes  pipePool
}

// Close closes idle pipes. The pool may still be used after it.
func (p *Pool) Close() { p.pipes.close() }

func (p *Pool) getFixed() *[BufferSize]byte {
	if b, ok := p.fixed.Get().(*[BufferSize]byte); ok {
		return b
	}
	return new([BufferSize]byte)
}

func (p *Pool) putFixed(b *[BufferSize]byte) { p.fixed.Put(b) }

// Buffer is a byte slice on loan, for a message that is held in memory.
type Buffer struct {
	B    []byte
	pool *Pool
}

// Get lends an empty buffer.
func (p *Pool) Get() *Buffer {
	if b, ok := p.frames.Get().(*Buffer); ok {
		return b
	}
	return &Buffer{pool: p}
}

// Release gives b back; neither b nor what its bytes were may be used after that.
func (b *Buffer) Release() {
	if cap(b.B) > maxKeptBytes {
		b.B = nil
	}
	b.B = b.B[:0]
	b.pool.frames.Put(b)
}
