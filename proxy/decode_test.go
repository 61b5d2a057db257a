package proxy

import (
	"reflect"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/translate"
)

// widen calls f with each list of the message at v, in turn, having n empty elements: those of the fewest bytes.
func widen(v reflect.Value, n int, path string, f func(path string)) {
	for i := range v.NumField() {
		field, name := v.Field(i), path+"."+v.Type().Field(i).Name
		switch {
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() != reflect.Uint8:
			field.Set(reflect.MakeSlice(field.Type(), n, n))
			f(name)
			if field.Type().Elem().Kind() == reflect.Struct {
				for j := range n {
					tag(field.Index(j))
				}
				f(name + ", tagged")
				field.Set(reflect.MakeSlice(field.Type(), 1, 1))
				widen(field.Index(0), n, name, f)
			}
			field.SetZero()
		case field.Kind() == reflect.Struct && field.Type() != reflect.TypeFor[kmsg.Tags]():
			widen(field, n, name, f)
		}
	}
}

// tag gives a message a tagged field that nobody knows.
func tag(v reflect.Value) {
	if tags := v.FieldByName("UnknownTags"); tags.IsValid() {
		tags.Addr().Interface().(*kmsg.Tags).Set(1000, nil)
	}
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestNoRequestTakesMoreThanIsCounted(t *testing.T) {
	const n, slack = 5_000, 256 << 10
	table := apis()
	eachVersion(t, func(t *testing.T, key, version int16) {
		oldest, newest := version == table[key].min, version == table[key].max // compact encodings, and those before
		if key == int16(kmsg.Fetch) || !oldest && !newest {                    // a Fetch is passed on as it comes
			return
		}
		r := newRig(t, identityRoute(), translate.IdentityNames(), virtualWorld())
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		widen(reflect.ValueOf(req).Elem(), n, "", func(path string) {
			size := int64(len(req.AppendTo(nil)))
			if size < n {
				return // not in this version
			}
			before := liveHeap()
			c, err := r.call(req)
			took := liveHeap() - before
			counted := c.entries.bytes
			if key == int16(kmsg.Produce) && err != nil {
				counted = size // refused: nothing of it stays
			} else if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if takes := 2*size + slack; took > counted+takes {
				t.Errorf("%s: %d bytes of request hold %d, counted are %d", path, size, took, counted)
			}
			c.release()
			if held := r.p.memory.Held() + r.s.holding.bytes.Load(); held != 0 {
				t.Errorf("%s: %d bytes are still held", path, held)
			}
		})
	})
}

func TestRequestsThatWouldTakeFarMoreThanTheirBytesAreRefused(t *testing.T) {
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version, metadata.Topics = 9, make([]kmsg.MetadataRequestTopic, maxEntries+1)
	tags := kmsg.NewPtrHeartbeatRequest()
	tags.Version = 4
	for i := range uint32(maxEntries + 1) {
		tags.UnknownTags.Set(i, nil)
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version = 5
	sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberAssignment: make([]byte, maxDecoded)}}
	empty := produceTo("orders", -1, nil)
	empty.Topics[0].Partitions = make([]kmsg.ProduceRequestTopicPartition, 100_000)
	for name, one := range map[string]struct {
		req    kmsg.Request
		reason closeReason
	}{
		"entries":             {metadata, closedFrameSize},
		"tags":                {tags, closedFrameSize},
		"bytes":               {sync, closedFrameSize},
		"no batch in Produce": {empty, closedMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, identityRoute(), translate.IdentityNames(), virtualWorld())
			c, err := r.call(one.req)
			defer c.release()
			if err == nil || reasonOf(err, "") != one.reason {
				t.Errorf("%v", err)
			}
		})
	}
}
