package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// file is one Go file of the module.
type file struct {
	path   string // from the top of the module, with slashes
	pkg    string // its folder; empty for the top
	test   bool
	text   string
	syntax *ast.File
	set    *token.FileSet
}

func (f *file) line(pos token.Pos) int { return f.set.Position(pos).Line }

func (f *file) at(pos token.Pos) string { return fmt.Sprintf("%s:%d", f.path, f.line(pos)) }

// generated says whether a program wrote the file; such files are as long as they are.
func (f *file) generated() bool { return ast.IsGenerated(f.syntax) }

// goFiles parses every Go file below root but those in testdata, vendor and folders that begin with a dot.
func goFiles(root string) ([]*file, error) {
	var files []*file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != root && (base == "testdata" || base == "vendor" || base == "node_modules" || strings.HasPrefix(base, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") {
			return nil
		}
		f, err := parseFile(root, name)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

func parseFile(root, name string) (*file, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(root, name)
	if err != nil {
		return nil, err
	}
	return parseText(filepath.ToSlash(relative), string(text))
}

// parseText is parseFile for text in memory.
func parseText(name, text string) (*file, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	pkg := path.Dir(name)
	if pkg == "." {
		pkg = ""
	}
	return &file{path: name, pkg: pkg, test: strings.HasSuffix(name, "_test.go"), text: text, syntax: syntax, set: set}, nil
}

// moduleName reads the module's path out of go.mod.
func moduleName(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(name), nil
		}
	}
	return "", fmt.Errorf("go.mod names no module")
}
