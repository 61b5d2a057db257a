package wire

import "math"

// Tee reads fields from In and passes them on to Out as they are. A field that is to change is read from In and put into
// Out instead. Views are valid until the next call.
type Tee struct {
	In  *Reader
	Out *Writer
}

func (t Tee) Int8() int8 {
	v := t.In.Int8()
	t.Out.PutInt8(v)
	return v
}

func (t Tee) Int16() int16 {
	v := t.In.Int16()
	t.Out.PutInt16(v)
	return v
}

func (t Tee) Int32() int32 {
	v := t.In.Int32()
	t.Out.PutInt32(v)
	return v
}

func (t Tee) Int64() int64 {
	v := t.In.Int64()
	t.Out.PutInt64(v)
	return v
}

func (t Tee) UUID() [16]byte {
	v := t.In.UUID()
	t.Out.PutUUID(v)
	return v
}

func (t Tee) Uvarint() uint32 {
	v := t.In.Uvarint()
	t.Out.PutUvarint(v)
	return v
}

func (t Tee) String() []byte {
	v := t.In.String()
	t.Out.PutString(v)
	return v
}

func (t Tee) CompactString() []byte {
	v := t.In.CompactString()
	t.Out.PutCompactString(v)
	return v
}

func (t Tee) ArrayLen() int {
	n := t.In.ArrayLen()
	t.Out.PutArrayLen(n)
	return n
}

func (t Tee) CompactArrayLen() int {
	n := t.In.CompactArrayLen()
	t.Out.PutCompactArrayLen(n)
	return n
}

// Tags passes all tagged fields on, unseen.
func (t Tee) Tags() {
	for n := t.Uvarint(); n > 0 && t.ok(); n-- {
		t.Uvarint()
		t.Bytes(int(min(int64(t.Uvarint()), math.MaxInt32)))
	}
}

// Bytes passes n bytes on, unseen.
func (t Tee) Bytes(n int) {
	if t.ok() {
		_ = t.In.CopyN(t.Out, n) // sticks
	}
}

func (t Tee) ok() bool { return t.In.err == nil && t.Out.err == nil }
