package obs

import (
	"time"

	"github.com/rs/zerolog"
)

// The events below are transitions that operators search for: one line each, with a constant message and the same
// fields everywhere. Log writes it; fields that are zero are left out where zero says nothing.

// PhaseChanged is a step of a cutover.
type PhaseChanged struct {
	VirtualCluster string
	Cutover        string // id
	Mode           string // planned or forced
	From, To       string // phases
	Generation     int64
	Took           time.Duration // in From
	Err            error         // why it goes back; nil on the way forward
	Hint           string
}

// Log writes the event: info, or error if it goes back.
func (e PhaseChanged) Log(log zerolog.Logger) {
	line := log.Info()
	if e.Err != nil {
		line = log.Error().Err(e.Err)
	}
	line = line.Str(KeyVirtualCluster, e.VirtualCluster).Str(KeyCutover, e.Cutover).Str(KeyMode, e.Mode).
		Str(KeyFrom, e.From).Str(KeyTo, e.To).Int64(KeyGeneration, e.Generation).Int64(KeyMillis, e.Took.Milliseconds())
	optional(line, KeyHint, e.Hint).Msg("cutover phase changed")
}

// PumpChanged is a pump's step from one state to another.
type PumpChanged struct {
	Flow         string
	Topic        string
	Partition    int32
	From, To     string // states
	Reason, Hint string // of Stopped
}

// Log writes the event: a warning if the pump stopped, else debug, since there may be thousands.
func (e PumpChanged) Log(log zerolog.Logger) {
	line := log.Debug()
	if e.To == "Stopped" {
		line = log.Warn()
	}
	line = line.Str(KeyFlow, e.Flow).Str(KeyTopic, e.Topic).Int32(KeyPartition, e.Partition).Str(KeyFrom, e.From).Str(KeyTo, e.To)
	optional(optional(line, KeyReason, e.Reason), KeyHint, e.Hint).Msg("pump changed")
}

// SlotChanged is a slot won or lost by this process.
type SlotChanged struct {
	Flow   string
	Slot   int32
	State  string // owned or lost
	Reason string
	Took   time.Duration // to fence and replay, or how long it was owned
}

// Log writes the event.
func (e SlotChanged) Log(log zerolog.Logger) {
	line := log.Info().Str(KeyFlow, e.Flow).Int32(KeySlot, e.Slot).Str(KeyState, e.State).Int64(KeyMillis, e.Took.Milliseconds())
	optional(line, KeyReason, e.Reason).Msg("slot changed")
}

// SessionEnded is the end of a client connection for a reason that is ours or an error.
type SessionEnded struct {
	VirtualCluster string
	Client         string // remote address
	ClientID       string
	Reason         string // from the proxy's enum, also the metric's label
	Err            error
}

// Log writes the event: debug, since clients come and go; the metric counts them.
func (e SessionEnded) Log(log zerolog.Logger) {
	line := log.Debug().Str(KeyVirtualCluster, e.VirtualCluster).Str(KeyClient, e.Client).Str(KeyReason, e.Reason).Err(e.Err)
	optional(line, KeyClientID, e.ClientID).Msg("session ended")
}

func optional(line *zerolog.Event, key, value string) *zerolog.Event {
	if value == "" {
		return line
	}
	return line.Str(key, value)
}
