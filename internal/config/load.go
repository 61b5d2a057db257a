package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	maxFileBytes   = 1 << 20
	maxSecretBytes = 64 << 10
)

// surroundings is what a file may refer to outside itself.
type surroundings struct {
	lookupEnv func(string) (string, bool)
	readFile  func(string) ([]byte, error) // of a path as resolved by path
	dir       string                       // relative paths start here; empty: the working directory
}

func (s surroundings) path(p string) string {
	if p == "" || filepath.IsAbs(p) || s.dir == "" {
		return p
	}
	return filepath.Join(s.dir, p)
}

// Load reads, checks and returns the file at path. Paths in it are relative to its folder. The error, if any, is a
// *Problems with every mistake, unless the file itself cannot be read.
func Load(path string) (*Config, error) {
	data, err := readBounded(path, maxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	around := surroundings{lookupEnv: os.LookupEnv, readFile: readSecretFile, dir: filepath.Dir(path)}
	c, problems := parse(data, around)
	c.resolvePaths(around)
	c.checkFiles(problems)
	if err := problems.err(); err != nil {
		var all *Problems
		if errors.As(err, &all) {
			all.File = path
		}
		return nil, err
	}
	return c, nil
}

// Parse is Load for text that is in memory: paths are relative to the working directory, and the PEM files that it
// names are not opened.
func Parse(data []byte) (*Config, error) {
	c, problems := parse(data, surroundings{lookupEnv: os.LookupEnv, readFile: readSecretFile})
	if err := problems.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// parse always returns a Config, as far as it could be read.
func parse(data []byte, around surroundings) (*Config, *collector) {
	c := Default()
	c.lines = make(map[string]int)
	problems := &collector{lines: c.lines}
	if len(data) > maxFileBytes {
		problems.add("", "", "the configuration is longer than %d bytes", maxFileBytes)
		return c, problems
	}
	root, err := readDocument(data)
	if err != nil {
		problems.add("", "mend the YAML first; the rest was not looked at", "%s", syntaxText(err))
		return c, problems
	}
	d := decoder{around: around, problems: problems, lines: c.lines}
	d.decode(root, c)
	c.derive()
	c.validate(problems)
	return c, problems
}

var errSecondDocument = errors.New("a second YAML document follows; only one is read")

// readDocument returns the top node, nil if there is nothing in the file.
func readDocument(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var rest yaml.Node
	if err := dec.Decode(&rest); err == nil {
		return nil, errSecondDocument
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// syntaxText keeps words of the file out of the message: an unquoted password that begins with * reads as an alias.
func syntaxText(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if strings.Contains(text, "anchor") {
		return "a value begins with * or & and reads as a YAML alias or anchor; put it in quotes"
	}
	return text
}

func readSecretFile(path string) ([]byte, error) { return readBounded(path, maxSecretBytes) }

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return data, nil
}
