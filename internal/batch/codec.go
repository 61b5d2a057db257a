package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// ErrTooLarge says that a batch would decompress to more than the bound.
var ErrTooLarge = errors.New("batch: decompresses to more than the limit")

// Codecs is what has to look into records: compressors, decompressors, scratch space, and the bound on what a batch may
// decompress to. Safe for use by many goroutines.
type Codecs struct {
	limit int // bytes of records, decompressed, of one batch (or of one wrapper message)

	gunzip, unlz4, unzstd sync.Pool // *gzip.Reader, *lz4.Reader, *zstd.Decoder
	gzip, lz4, zstd       sync.Pool // *gzip.Writer, *lz4.Writer, *zstd.Encoder
	scratch               sync.Pool // *[]byte
}

// DefaultLimitBytes is the bound if NewCodecs is given none. Brokers take 1 MiB compressed by default, and a real topic
// does not compress a hundredfold.
const DefaultLimitBytes = 128 << 20

// NewCodecs bounds each decompression at limitBytes; 0 means DefaultLimitBytes.
func NewCodecs(limitBytes int) *Codecs {
	if limitBytes <= 0 {
		limitBytes = DefaultLimitBytes
	}
	c := &Codecs{limit: limitBytes}
	c.gunzip.New = func() any { return new(gzip.Reader) }
	c.unlz4.New = func() any { return lz4.NewReader(nil) }
	c.unzstd.New = func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(uint64(limitBytes)))
		if err != nil {
			panic(fmt.Sprintf("batch: zstd refuses constant options: %v", err))
		}
		return d
	}
	c.gzip.New = func() any { return gzip.NewWriter(nil) }
	c.lz4.New = newLZ4Writer
	c.zstd.New = func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(128<<10))
		if err != nil {
			panic(fmt.Sprintf("batch: zstd refuses constant options: %v", err))
		}
		return e
	}
	c.scratch.New = func() any { return new([]byte) }
	return c
}

// newLZ4Writer frames as the Java producer does: independent blocks of 64 KiB (what brokers allocate per block), no
// checksums, because the batch has one.
func newLZ4Writer() any {
	w := lz4.NewWriter(nil)
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
		panic(fmt.Sprintf("batch: lz4 refuses constant options: %v", err))
	}
	return w
}

// maxKeptScratch bounds what one pooled buffer may hold on to, in bytes.
const maxKeptScratch = 4 << 20

func (c *Codecs) getScratch() *[]byte { return c.scratch.Get().(*[]byte) }

func (c *Codecs) putScratch(b *[]byte) {
	if cap(*b) <= maxKeptScratch {
		*b = (*b)[:0]
		c.scratch.Put(b)
	}
}

// decompress appends what src decompresses to, at most c.limit bytes.
func (c *Codecs) decompress(dst, src []byte, codec Codec) ([]byte, error) {
	switch codec {
	case None:
		if len(src) > c.limit {
			return nil, ErrTooLarge
		}
		return append(dst, src...), nil
	case Gzip:
		r := c.gunzip.Get().(*gzip.Reader)
		defer c.gunzip.Put(r)
		if err := r.Reset(bytes.NewReader(src)); err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		return readBounded(dst, r, c.limit)
	case Snappy:
		return unsnappy(dst, src, c.limit)
	case LZ4:
		r := c.unlz4.Get().(*lz4.Reader)
		defer c.unlz4.Put(r)
		r.Reset(bytes.NewReader(src))
		return readBounded(dst, r, c.limit)
	case Zstd:
		return c.decompressZstd(dst, src)
	}
	return nil, fmt.Errorf("batch: unknown codec %d", codec)
}

// decompressZstd: the decoder's own bound covers all frames of src and what they declare, and counts dst in, so dst is
// hidden from it.
func (c *Codecs) decompressZstd(dst, src []byte) ([]byte, error) {
	d := c.unzstd.Get().(*zstd.Decoder)
	defer c.unzstd.Put(d)
	out, err := d.DecodeAll(src, dst[len(dst):])
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out) > c.limit:
		return nil, ErrTooLarge
	case err != nil:
		return nil, fmt.Errorf("zstd: %w", err)
	}
	if len(dst) == 0 {
		return out, nil
	}
	return append(dst, out...), nil // in place, if out fitted behind dst
}

// readBounded appends all of r, at most limit bytes. The buffer grows with what arrives.
func readBounded(dst []byte, r io.Reader, limit int) ([]byte, error) {
	start := len(dst)
	for {
		dst = slices.Grow(dst, 512)
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst)-start > limit:
			return nil, ErrTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return nil, err
		}
	}
}

// xerialMagic begins the framing that Java uses around snappy; version and lowest compatible version (int32 each) follow,
// then blocks of an int32 length and raw snappy. Other clients send one raw block without it.
const xerialMagic = "\x82SNAPPY\x00"

const (
	xerialHeader    = xerialMagic + "\x00\x00\x00\x01\x00\x00\x00\x01"
	xerialBlockSize = 32 << 10
)

var errXerial = errors.New("snappy: malformed xerial framing")

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < len(xerialHeader) || string(src[:len(xerialMagic)]) != xerialMagic {
		return unsnappyBlock(dst, src, limit)
	}
	start, src := len(dst), src[len(xerialHeader):]
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, errXerial
		}
		n := int64(binary.BigEndian.Uint32(src))
		if n > int64(len(src)-4) {
			return nil, errXerial
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[4:4+n], limit-(len(dst)-start)); err != nil {
			return nil, err
		}
		src = src[4+n:]
	}
	return dst, nil
}

// maxSnappyRatio is above what the format can reach: a copy of 64 bytes takes 3. A block that claims more lies, and must
// not make us allocate.
const maxSnappyRatio = 32

func unsnappyBlock(dst, src []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	switch {
	case err != nil:
		return nil, fmt.Errorf("snappy: %w", err)
	case n > limit:
		return nil, ErrTooLarge
	case n > maxSnappyRatio*len(src):
		return nil, fmt.Errorf("snappy: %d bytes cannot hold %d", len(src), n)
	}
	dst = slices.Grow(dst, n)
	if _, err := s2.Decode(dst[len(dst):len(dst)+n], src); err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	return dst[:len(dst)+n], nil
}

// sliceWriter appends what is written to b.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// compress appends src, compressed.
func (c *Codecs) compress(dst, src []byte, codec Codec) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		w := c.gzip.Get().(*gzip.Writer)
		defer c.gzip.Put(w)
		return compressTo(dst, src, w)
	case Snappy:
		return snappy(dst, src), nil
	case LZ4:
		w := c.lz4.Get().(*lz4.Writer)
		defer c.lz4.Put(w)
		return compressTo(dst, src, w)
	case Zstd:
		e := c.zstd.Get().(*zstd.Encoder)
		defer c.zstd.Put(e)
		return e.EncodeAll(src, dst), nil
	}
	return nil, fmt.Errorf("batch: unknown codec %d", codec)
}

func compressTo(dst, src []byte, w interface {
	io.WriteCloser
	Reset(io.Writer)
}) ([]byte, error) {
	out := sliceWriter{dst}
	w.Reset(&out)
	defer w.Reset(nil)
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.b, nil
}

// snappy writes Java's framing, which every client and broker reads.
func snappy(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		n := min(len(src), xerialBlockSize)
		dst = slices.Grow(dst, 4+s2.MaxEncodedLen(n))
		at := len(dst) + 4
		block := s2.EncodeSnappy(dst[at:cap(dst)], src[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = append(dst, block...) // in place: block lies here already
		src = src[n:]
	}
	return dst
}
