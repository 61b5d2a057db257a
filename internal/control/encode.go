package control

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/switchback-proxy/switchback/translate"
)

// Values are JSON objects with "v": 1. A reader refuses a higher version, an unknown field and anything that is not
// valid: a record that is half understood is worse than none. A change of meaning, or a field that an older reader may not
// overlook, takes a new version.
//
//	state  {"v":1,"virtual_cluster":"main","generation":2,"active":"green","standby":"blue","phase":"Done",
//	        "cutover":{"id","from","to","mode","started_at","max_pause_ms","phases":[{"phase","started_at","ms","facts"}],
//	                   "pause_ms","error"},
//	        "identity":{"cluster_id":"…","nodes":{"blue":[1,2,3]},"versions":{"0":[3,11]}}}
//	topic  {"v":1,"name":"orders","virtual_id":"<32 hex digits>","ids":{"blue":"<32 hex digits>"},
//	        "partitions":[[[generation,"cluster",virtual,physical,shift,first epoch], …era], …partition]}
//	group  {"v":1,"name":"billing","shift":3,"members":{"shown":"real"},"leader":"shown","sessions":{"shown":{…}}}
const encodingVersion = 1

// maxGeneration is the last one that the id scheme of producers has room for.
const maxGeneration = 2047

// Record is one entry of the control log. A nil Value removes the key.
type Record struct {
	Key   string
	Value []byte
}

func stateKey(vc string) string       { return "state/" + vc }
func topicKey(vc, name string) string { return "topic/" + vc + "/" + name }
func groupKey(vc, name string) string { return "group/" + vc + "/" + name }

// StateRecord is st as an entry of the log.
func StateRecord(st State) (Record, error) {
	if err := st.valid(); err != nil {
		return Record{}, fmt.Errorf("encode the state of %s: %w", st.VirtualCluster, err)
	}
	value, err := json.Marshal(versioned[State]{Version: encodingVersion, Body: st})
	return Record{Key: stateKey(st.VirtualCluster), Value: value}, err
}

// TopicRecord is t as an entry of the log of a virtual cluster.
func TopicRecord(vc string, t Topic) (Record, error) {
	if err := t.valid(); err != nil {
		return Record{}, fmt.Errorf("encode topic %s: %w", t.Name, err)
	}
	value, err := json.Marshal(versioned[topicJSON]{Version: encodingVersion, Body: t.json()})
	return Record{Key: topicKey(vc, t.Name), Value: value}, err
}

// GroupRecord is g as an entry of the log of a virtual cluster.
func GroupRecord(vc string, g Group) (Record, error) {
	if err := g.valid(); err != nil {
		return Record{}, fmt.Errorf("encode group %s: %w", g.Name, err)
	}
	value, err := json.Marshal(versioned[Group]{Version: encodingVersion, Body: g})
	return Record{Key: groupKey(vc, g.Name), Value: value}, err
}

// versioned lays the version beside the fields of the body.
type versioned[T any] struct {
	Version int
	Body    T
}

func (v versioned[T]) MarshalJSON() ([]byte, error) {
	body, err := json.Marshal(v.Body)
	if err != nil || len(body) < 3 || body[0] != '{' {
		return body, err
	}
	return append(fmt.Appendf(nil, `{"v":%d,`, v.Version), body[1:]...), nil
}

// decodeStrict reads one JSON object with its version into body and refuses what it does not know.
func decodeStrict(value []byte, body any) error {
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return err
	}
	if head.Version != encodingVersion {
		return fmt.Errorf("version %d, only %d is known", head.Version, encodingVersion)
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(body); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	return nil
}

func decodeState(value []byte) (State, error) {
	var in struct {
		Version int `json:"v"`
		State
	}
	if err := decodeStrict(value, &in); err != nil {
		return State{}, err
	}
	if c := in.Cutover; c != nil {
		for i := range c.Phases {
			normalise(c.Phases[i].Facts)
		}
	}
	return in.State, in.valid()
}

func decodeGroup(value []byte) (Group, error) {
	var in struct {
		Version int `json:"v"`
		Group
	}
	if err := decodeStrict(value, &in); err != nil {
		return Group{}, err
	}
	return in.Group, in.valid()
}

func decodeTopic(value []byte) (Topic, error) {
	var in struct {
		Version int `json:"v"`
		topicJSON
	}
	if err := decodeStrict(value, &in); err != nil {
		return Topic{}, err
	}
	t, err := in.topic()
	if err != nil {
		return Topic{}, err
	}
	return t, t.valid()
}

// normalise turns whole numbers of facts, which JSON reads as float64, back into int64.
func normalise(facts map[string]any) {
	for k, v := range facts {
		if f, ok := v.(float64); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			facts[k] = int64(f)
		}
	}
}

type topicJSON struct {
	Name       string            `json:"name"`
	VirtualID  string            `json:"virtual_id"`
	IDs        map[string]string `json:"ids"`
	Partitions [][]eraJSON       `json:"partitions"`
}

func (t Topic) json() topicJSON {
	out := topicJSON{Name: t.Name, VirtualID: hex.EncodeToString(t.VirtualID[:]), IDs: make(map[string]string, len(t.IDs))}
	for cluster, id := range t.IDs {
		out.IDs[cluster] = hex.EncodeToString(id[:])
	}
	for _, eras := range t.Partitions {
		list := make([]eraJSON, len(eras))
		for i, e := range eras {
			list[i] = eraJSON(e)
		}
		out.Partitions = append(out.Partitions, list)
	}
	return out
}

func (t topicJSON) topic() (Topic, error) {
	out := Topic{Name: t.Name, IDs: make(map[string][16]byte, len(t.IDs))}
	var err error
	if out.VirtualID, err = parseID(t.VirtualID); err != nil {
		return Topic{}, err
	}
	for cluster, text := range t.IDs {
		if out.IDs[cluster], err = parseID(text); err != nil {
			return Topic{}, err
		}
	}
	for _, eras := range t.Partitions {
		list := make([]Era, len(eras))
		for i, e := range eras {
			list[i] = Era(e)
		}
		out.Partitions = append(out.Partitions, list)
	}
	return out, nil
}

func parseID(text string) (id [16]byte, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%.40q is no topic id", text)
	}
	return [16]byte(b), nil
}

// eraJSON is an Era as an array: topics may have thousands of partitions and tens of eras.
type eraJSON Era

func (e eraJSON) MarshalJSON() ([]byte, error) {
	cluster, err := json.Marshal(e.Cluster)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "[%d,%s,%d,%d,%d,%d]", e.Generation, cluster, e.Virtual, e.Physical, e.Shift, e.FirstEpoch), nil
}

func (e *eraJSON) UnmarshalJSON(data []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	into := []any{&e.Generation, &e.Cluster, &e.Virtual, &e.Physical, &e.Shift, &e.FirstEpoch}
	if len(parts) != len(into) {
		return fmt.Errorf("an era has %d values, not %d", len(into), len(parts))
	}
	for i, part := range parts {
		if string(part) == "null" {
			return errors.New("an era has no null")
		}
		if err := json.Unmarshal(part, into[i]); err != nil {
			return err
		}
	}
	return nil
}

// valid says what is wrong with a state; called on everything that enters or leaves the log.
func (s State) valid() error {
	switch {
	case s.VirtualCluster == "" || strings.Contains(s.VirtualCluster, "/"):
		return fmt.Errorf("virtual cluster %q", s.VirtualCluster)
	case s.Generation < 1 || s.Generation > maxGeneration:
		return fmt.Errorf("generation %d", s.Generation)
	case s.Active == "" || s.Standby == "" || s.Active == s.Standby:
		return fmt.Errorf("active %q and standby %q", s.Active, s.Standby)
	case s.Phase.Rank() < 0:
		return fmt.Errorf("phase %q", s.Phase)
	case s.Phase.Running() && s.Cutover == nil:
		return fmt.Errorf("phase %s of no cutover", s.Phase)
	}
	if c := s.Cutover; c != nil {
		for _, p := range c.Phases {
			if err := validFacts(p); err != nil {
				return err
			}
		}
	}
	for key, r := range s.Identity.Versions {
		if r[0] < 0 || r[0] > r[1] {
			return fmt.Errorf("versions %d to %d of API key %d", r[0], r[1], key)
		}
	}
	return nil
}

func validFacts(p PhaseRecord) error {
	if p.Phase.Rank() < 0 {
		return fmt.Errorf("phase %q", p.Phase)
	}
	for name, value := range p.Facts {
		switch value.(type) {
		case string, int, int32, int64, float64:
		default:
			return fmt.Errorf("fact %s of phase %s is a %T", name, p.Phase, value)
		}
	}
	return nil
}

// valid: eras are in order of generation and of virtual offset, and no partition is without one.
func (t Topic) valid() error {
	if t.Name == "" {
		return errors.New("no name")
	}
	for p, eras := range t.Partitions {
		if len(eras) == 0 {
			return fmt.Errorf("partition %d has no era", p)
		}
		before := Era{}
		for _, e := range eras {
			if e.Generation <= before.Generation || e.Generation > maxGeneration || e.Cluster == "" || e.Virtual < before.Virtual ||
				e.Virtual > translate.MaxOffset || e.Physical < 0 || e.Physical > translate.MaxOffset || e.Shift < 0 || e.FirstEpoch < before.FirstEpoch {
				return fmt.Errorf("partition %d: era %+v behind %+v", p, e, before)
			}
			before = e
		}
	}
	return nil
}

func (g Group) valid() error {
	if g.Name == "" {
		return errors.New("no name")
	}
	shown := make(map[string]string, len(g.Members))
	for s, r := range g.Members {
		if other, double := shown[r]; double {
			return fmt.Errorf("members %q and %q are both %q", s, other, r)
		}
		shown[r] = s
	}
	return nil
}
