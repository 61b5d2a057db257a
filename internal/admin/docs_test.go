package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/switchback-proxy/switchback/internal/cutover"
)

func httpDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryRouteIsInTheDocumentation(t *testing.T) {
	text := httpDocument(t)
	s := New(Config{Metrics: http.NotFoundHandler()})
	if len(s.patterns) < 15 {
		t.Errorf("only %d patterns", len(s.patterns))
	}
	for _, pattern := range s.patterns {
		shown := strings.NewReplacer("{$}", "", "...}", "}").Replace(pattern)
		if !strings.Contains(text, "`"+shown+"`") && !strings.Contains(text, "`GET "+shown+"`") {
			t.Errorf("docs/http.md does not have %s", shown)
		}
	}
}

func TestEveryFieldIsInTheDocumentation(t *testing.T) {
	text := httpDocument(t)
	for _, body := range []any{Status{}, Cutover{}, CutoverOrder{}, CutoverID{}, Translation{}, Group{}, Orphans{}, Reseeded{}, Failure{}} {
		for _, name := range fieldNames(reflect.TypeOf(body)) {
			if !strings.Contains(text, `"`+name+`"`) && !strings.Contains(text, "`"+name+"`") {
				t.Errorf("docs/http.md does not have %s of %T", name, body)
			}
		}
	}
}

// fieldNames are the JSON names of a type of this package, and of what it holds.
func fieldNames(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return fieldNames(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if name := f.Tag.Get("json"); name != "" {
				names = append(append(names, name), fieldNames(f.Type)...)
			}
		}
	}
	return names
}

func TestTheExampleOfAnErrorIsOne(t *testing.T) {
	_, block, _ := strings.Cut(httpDocument(t), "## Errors")
	_, block, _ = strings.Cut(block, "```\n")
	block, _, _ = strings.Cut(block, "```")
	var f Failure
	if err := json.Unmarshal([]byte(block), &f); err != nil || f.Error == nil || statusOf(f.Error.Code) != http.StatusBadRequest {
		t.Errorf("%s: %+v, %v", block, f.Error, err)
	}
}

func TestEveryCodeIsInTheDocumentationWithItsStatus(t *testing.T) {
	text := httpDocument(t)
	for _, code := range []string{
		codeBadRequest, codeUnauthorised, codeForbidden, codeInternal, codeMethod, codeTooLarge, cutover.CodeBadTarget, cutover.CodeNotFound,
		cutover.CodeRunning, cutover.CodeTooLate, cutover.CodeNotReseeded, cutover.CodeNotBuilt, cutover.CodeClusterDown, cutover.CodeShutdown,
	} {
		if row := fmt.Sprintf("| %d | `%s` |", statusOf(code), code); !strings.Contains(text, row) {
			t.Errorf("docs/http.md does not have %q", row)
		}
	}
}
