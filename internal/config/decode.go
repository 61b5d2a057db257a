package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder lays YAML nodes over the structs of this package. Unlike the YAML package's own decoding it goes on after a
// mistake, knows lines and paths, and resolves ${ENV} and file: as it goes. Aliases and merge keys are refused, so the
// work is bounded by the length of the text.
type decoder struct {
	around   surroundings
	problems *collector
	lines    map[string]int
}

// decode lays node over *c. A nil node leaves c as it is.
func (d *decoder) decode(node *yaml.Node, c *Config) {
	if node != nil {
		d.value(node, reflect.ValueOf(c).Elem(), "")
	}
}

// value sets v from node. A null leaves v as it is: the default.
func (d *decoder) value(node *yaml.Node, v reflect.Value, path string) {
	if path != "" {
		d.lines[path] = node.Line
	}
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		d.problems.add(path, "write the value out; a value that begins with * or & needs quotes", "YAML anchors and aliases are not read")
		return
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return
	}
	switch target := v.Addr().Interface().(type) {
	case *Naming:
		d.naming(node, target, path)
	case *Secret:
		d.secret(node, target, path)
	case *time.Duration:
		d.duration(node, target, path)
	default:
		d.kind(node, v, path)
	}
}

// kind handles the plain kinds; a kind that no struct of ours has is a fault of this package.
func (d *decoder) kind(node *yaml.Node, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Struct:
		d.structure(node, v, path)
	case reflect.Map:
		d.mapping(node, v, path)
	case reflect.Slice:
		d.list(node, v, path)
	case reflect.String:
		if text, ok := d.text(node, path); ok {
			v.SetString(text)
		}
	case reflect.Bool:
		d.boolean(node, v, path)
	case reflect.Int:
		d.integer(node, v, path)
	default:
		panic(fmt.Sprintf("config: no decoding for %s at %s", v.Type(), path))
	}
}

func (d *decoder) structure(node *yaml.Node, v reflect.Value, path string) {
	fields := fieldsOf(v.Type())
	for key, value := range d.pairs(node, path) {
		index, known := fields[key]
		if !known {
			d.unknownKey(key, value.Line, path, fields)
			continue
		}
		d.value(value, v.Field(index), join(path, key))
	}
}

func (d *decoder) mapping(node *yaml.Node, v reflect.Value, path string) {
	v.Set(reflect.MakeMap(v.Type()))
	for key, value := range d.pairs(node, path) {
		element := newElement(v.Type().Elem())
		d.value(value, element, join(path, key))
		v.SetMapIndex(reflect.ValueOf(key), element)
	}
}

func (d *decoder) list(node *yaml.Node, v reflect.Value, path string) {
	if node.Kind != yaml.SequenceNode {
		d.problems.add(path, "write it as [one, two]", "a list is wanted, this is %s", kindName(node))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, len(node.Content)))
	for i, item := range node.Content {
		element := newElement(v.Type().Elem())
		d.value(item, element, fmt.Sprintf("%s[%d]", path, i))
		v.Set(reflect.Append(v, element))
	}
}

func newElement(t reflect.Type) reflect.Value {
	element := reflect.New(t)
	if withDefaults, ok := element.Interface().(defaulter); ok {
		withDefaults.setDefaults()
	}
	return element.Elem()
}

// pairs yields the keys of a mapping in the order of the file. Keys that occur twice are reported and the later ones
// left out.
func (d *decoder) pairs(node *yaml.Node, path string) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			d.problems.add(path, "write it as {key: value}", "keys with values are wanted here, this is %s", kindName(node))
			return
		}
		seen := make(map[string]bool, len(node.Content)/2)
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			switch {
			case key.Kind != yaml.ScalarNode:
				d.problems.put(Problem{Path: path, Line: key.Line, Text: "a key must be plain text"})
			case seen[key.Value]:
				d.problems.put(Problem{Path: join(path, key.Value), Line: key.Line, Text: "the key is there twice", Hint: "remove one"})
			default:
				seen[key.Value] = true
				if !yield(key.Value, value) {
					return
				}
			}
		}
	}
}

func (d *decoder) unknownKey(key string, line int, path string, fields map[string]int) {
	known := sortedKeys(fields)
	hint := "known keys: " + strings.Join(known, ", ")
	if near := nearest(key, known); near != "" {
		hint = fmt.Sprintf("did you mean %q? %s", near, hint)
	}
	d.lines[join(path, key)] = line
	d.problems.add(join(path, key), hint, "unknown key %q", key)
}

// text returns a scalar with its ${ENV} references resolved.
func (d *decoder) text(node *yaml.Node, path string) (string, bool) {
	if node.Kind != yaml.ScalarNode {
		d.problems.add(path, "", "text is wanted, this is %s", kindName(node))
		return "", false
	}
	return d.expand(node.Value, path)
}

func (d *decoder) secret(node *yaml.Node, target *Secret, path string) {
	if node.Kind != yaml.ScalarNode {
		d.problems.add(path, "put it in quotes, or use ${ENV} or file:PATH", "text is wanted, this is %s", kindName(node))
		return
	}
	// file: is looked for before ${ENV} is resolved: a password out of the environment is never taken for a path.
	file, isFile := strings.CutPrefix(node.Value, "file:")
	if !isFile {
		if text, ok := d.expand(node.Value, path); ok {
			*target = Secret(text)
		}
		return
	}
	file, ok := d.expand(file, path)
	if !ok {
		return
	}
	data, err := d.around.readFile(d.around.path(file))
	if err != nil {
		d.problems.add(path, "the file must be readable by this process", "the secret's file cannot be read: %v", err)
		return
	}
	text := strings.TrimRight(string(data), "\r\n")
	if text == "" {
		d.problems.add(path, "put the secret into it, or remove the key", "the secret's file %s is empty", file)
		return
	}
	*target = Secret(text)
}

func (d *decoder) duration(node *yaml.Node, target *time.Duration, path string) {
	text, ok := d.text(node, path)
	if !ok {
		return
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		d.problems.add(path, "write a number with its unit, such as 500ms, 5s or 1m30s", "%q is not a duration", text)
		return
	}
	*target = value
}

func (d *decoder) boolean(node *yaml.Node, v reflect.Value, path string) {
	text, ok := d.text(node, path)
	if !ok {
		return
	}
	if text != "true" && text != "false" {
		d.problems.add(path, "write true or false", "%q is neither true nor false", text)
		return
	}
	v.SetBool(text == "true")
}

func (d *decoder) integer(node *yaml.Node, v reflect.Value, path string) {
	text, ok := d.text(node, path)
	if !ok {
		return
	}
	value, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, strconv.IntSize)
	if err != nil {
		d.problems.add(path, "write digits only", "%q is not a whole number", text)
		return
	}
	v.SetInt(value)
}

// naming takes the word identity, or a mapping with one of prefix and rename.
func (d *decoder) naming(node *yaml.Node, target *Naming, path string) {
	const hint = `write identity, {prefix: "{source}."} or {rename: {seen: there}}`
	if node.Kind == yaml.ScalarNode {
		if text, ok := d.text(node, path); ok && text != "identity" {
			d.problems.add(path, hint, "%q is not a naming", text)
		}
		return
	}
	before := len(d.problems.list)
	d.structure(node, reflect.ValueOf(target).Elem(), path)
	if len(d.problems.list) == before && target.Identity() {
		d.problems.add(path, hint, "the naming says neither prefix nor rename")
	}
}

// fieldsOf returns field indexes by YAML key.
func fieldsOf(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if key := t.Field(i).Tag.Get("yaml"); key != "" {
			fields[key] = i
		}
	}
	return fields
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.ScalarNode:
		return "a single value"
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a set of keys"
	default:
		return "something else"
	}
}
