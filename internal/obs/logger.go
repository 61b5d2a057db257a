package obs

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// LogConfig says how to log.
type LogConfig struct {
	Out      io.Writer // if nil, standard error
	Level    string    // trace, debug, info, warn or error; if empty, info
	Format   string    // json, or console for people; if empty, json
	Instance string    // in every line, unless empty
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00" // RFC 3339 with milliseconds

// NewLogger returns a logger. Console output is coloured if it goes to a terminal and NO_COLOR is not set.
func NewLogger(c LogConfig) (zerolog.Logger, error) {
	out := c.Out
	if out == nil {
		out = os.Stderr
	}
	if c.Level == "" {
		c.Level = "info"
	}
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		return zerolog.Nop(), fmt.Errorf("choose log level: %w", err)
	}
	switch c.Format {
	case "", "json":
	case "console":
		out = zerolog.ConsoleWriter{Out: out, NoColor: !coloured(out), TimeFormat: "15:04:05.000"}
	default:
		return zerolog.Nop(), fmt.Errorf("choose log format: %q is neither json nor console", c.Format)
	}
	log := zerolog.New(out).Level(level).Hook(timestamp{})
	if c.Instance != "" {
		log = log.With().Str(KeyInstance, c.Instance).Logger()
	}
	return log, nil
}

func coloured(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && isatty.IsTerminal(f.Fd()) && os.Getenv("NO_COLOR") == ""
}

// timestamp adds the time with milliseconds. The library's own has seconds, unless a global of it is changed.
type timestamp struct{}

func (timestamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(KeyTime, time.Now().Format(timeFormat))
}
