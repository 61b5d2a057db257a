package config

import (
	"fmt"
	"io"
)

const masked = "***"

// Secret is text that never prints: not by any verb of fmt, not in JSON, YAML or a log. Only [Secret.Reveal] has it.
// An empty Secret prints as empty, so that one sees that none is set.
type Secret string

// Reveal returns the text itself, to hand to the party it is meant for.
func (s Secret) Reveal() string { return string(s) }

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// GoString serves %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format serves every verb of fmt, so that %x or %d cannot get round String.
func (s Secret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, s.String())
}

// MarshalText serves encoders of text. A Secret must not be a map key: encoding/json takes such keys as they are.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON serves encoding/json.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// MarshalYAML serves the YAML encoder.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }
