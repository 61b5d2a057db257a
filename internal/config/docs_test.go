package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEveryKeyIsInTheDocumentationWithItsDefault(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]string) // cells by key
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); len(cells) >= 3 {
			rows[strings.Trim(cells[0], "|` ")] = cells
		}
	}
	c := Default()
	c.Clusters = map[string]Cluster{"NAME": {}}
	c.VirtualClusters = make([]VirtualCluster, 1)
	c.VirtualClusters[0].setDefaults()
	keys := keysOf(reflect.ValueOf(*c), "")
	if len(keys) < 50 {
		t.Errorf("only %d keys", len(keys))
	}
	for key, standard := range keys {
		cells, there := rows[key]
		switch {
		case !there:
			t.Errorf("docs/configuration.md has no row for %s", key)
		case standard != "" && !strings.Contains(cells[2], "`"+standard+"`"):
			t.Errorf("docs/configuration.md: the default of %s is %s, not %s", key, standard, cells[2])
		}
		delete(rows, key)
	}
	for key := range rows {
		if strings.Contains(key, ".") {
			t.Errorf("docs/configuration.md has %s, which is no key", key)
		}
	}
}

// keysOf are the paths of all keys, with their default; empty if there is none.
func keysOf(v reflect.Value, path string) map[string]string {
	keys := make(map[string]string)
	add := func(v reflect.Value, path string) {
		for key, standard := range keysOf(v, path) {
			keys[key] = standard
		}
	}
	switch {
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if key := v.Type().Field(i).Tag.Get("yaml"); key != "" {
				keys[join(path, key)] = standardOf(v.Field(i))
				add(v.Field(i), join(path, key))
			}
		}
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Struct:
		for _, name := range v.MapKeys() {
			add(v.MapIndex(name), join(path, name.String()))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			add(v.Index(i), path+"[]")
		}
	}
	return keys
}

func standardOf(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case []string:
		if len(value) > 0 {
			return fmt.Sprintf("%q", value[0])
		}
	case time.Duration, int, string:
		if !v.IsZero() {
			return fmt.Sprint(value)
		}
	}
	return ""
}
