package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// checkImports judges the imports of one file by the map.
func checkImports(f *file, module string) []string {
	r, known := ruleOf(f.pkg)
	if !known {
		return []string{fmt.Sprintf("%s: package %q is not in the map of internal/lint/packages.go", f.path, f.pkg)}
	}
	var found []string
	for _, spec := range f.syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		imported, ours := strings.CutPrefix(name, module+"/")
		if !ours && name != module || r.allows(f, imported) {
			continue
		}
		found = append(found, fmt.Sprintf("%s: %s must not import %s", f.at(spec.Pos()), f.pkg, imported))
	}
	return found
}

func ruleOf(pkg string) (rule, bool) {
	all := packages()
	if r, ok := all[pkg]; ok {
		return r, true
	}
	for name, r := range all {
		if prefix, wild := strings.CutSuffix(name, "..."); wild && strings.HasPrefix(pkg, prefix) {
			return r, true
		}
	}
	return rule{}, false
}

func (r rule) allows(f *file, imported string) bool {
	if r.any || imported == f.pkg && f.test {
		return true
	}
	if r.leaf {
		return false
	}
	if other, ok := ruleOf(imported); ok && other.leaf && imported != "internal/lint" {
		return true
	}
	return slices.Contains(r.imports, imported) || f.test && slices.Contains(forTests(), imported)
}

// checkSizes judges the length of a file and of its functions.
func checkSizes(f *file) []string {
	if f.generated() {
		return nil
	}
	var found []string
	if n := strings.Count(f.text, "\n"); n > maxFileLines {
		found = append(found, fmt.Sprintf("%s: %d lines, at most %d", f.path, n, maxFileLines))
	}
	for _, decl := range f.syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		if n := f.functionLines(fn); n > maxFunctionLines {
			found = append(found, fmt.Sprintf("%s: %s has %d lines, at most %d", f.at(fn.Pos()), fn.Name.Name, n, maxFunctionLines))
		}
	}
	return found
}

// functionLines counts the lines of a function without those of its tables: composite literals that hold no code.
func (f *file) functionLines(fn *ast.FuncDecl) int {
	lines := f.line(fn.End()) - f.line(fn.Pos()) + 1
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok || holdsCode(literal) {
			return true
		}
		lines -= f.line(literal.End()) - f.line(literal.Pos())
		return false
	})
	return lines
}

func holdsCode(literal *ast.CompositeLit) bool {
	found := false
	ast.Inspect(literal, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			found = true
		}
		return !found
	})
	return found
}

// checkHabits finds init functions, time.Sleep and words that put work off.
func checkHabits(f *file) []string {
	var found []string
	for _, decl := range f.syntax.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		if fn.Recv == nil && fn.Name.Name == "init" {
			found = append(found, f.at(fn.Pos())+": no init function: do it where the package is used")
		}
		if _, allowed := sleeps()[f.pkg+"."+fn.Name.Name]; allowed {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isSelector(call.Fun, "time", "Sleep") {
				found = append(found, f.at(call.Pos())+": no time.Sleep: wait for the condition, with a deadline")
			}
			return true
		})
	}
	return append(found, f.postponed()...)
}

// postponed finds comments that put work off. The words are put together here so as not to find themselves.
func (f *file) postponed() []string {
	var found []string
	for _, group := range f.syntax.Comments {
		for _, comment := range group.List {
			for _, word := range []string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "for " + "now"} {
				if strings.Contains(comment.Text, word) {
					found = append(found, fmt.Sprintf("%s: %q: do it, or say why it is right as it is", f.at(comment.Pos()), word))
				}
			}
		}
	}
	return found
}

// checkGlobals finds package-level variables that are neither errors, patterns, tables nor checks of an interface. Not
// below test/, where what all tests of a process share (ports, built programs) has no other owner.
func checkGlobals(f *file) []string {
	if f.pkg == "test" || strings.HasPrefix(f.pkg, "test/") {
		return nil
	}
	var found []string
	for _, decl := range f.syntax.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.VAR {
			continue
		}
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				_, allowed := mutableGlobals()[f.pkg+"."+name.Name]
				if allowed || name.Name == "_" || isEmbedded(group, value) || isZeroArray(value) || i < len(value.Values) && isConstantLike(value.Values[i]) {
					continue
				}
				found = append(found, fmt.Sprintf("%s: package variable %s: hand it in, or list it in internal/lint/packages.go with its reason", f.at(name.Pos()), name.Name))
			}
		}
	}
	return found
}

// isConstantLike is for what Go has no constant form of: errors, patterns, CRC tables, literals of slices, maps and
// structs, and a table that a function on the spot works out. A pointer is not.
func isConstantLike(value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.CallExpr:
		if _, onTheSpot := v.Fun.(*ast.FuncLit); onTheSpot {
			return true
		}
		for _, allowed := range [][2]string{{"errors", "New"}, {"fmt", "Errorf"}, {"regexp", "MustCompile"}, {"crc32", "MakeTable"}, {"kerr", "ErrorForCode"}} {
			if isSelector(v.Fun, allowed[0], allowed[1]) {
				return true
			}
		}
	}
	return false
}

// isZeroArray is for an array that is declared without a value: zeros to read from.
func isZeroArray(value *ast.ValueSpec) bool {
	array, ok := value.Type.(*ast.ArrayType)
	return ok && array.Len != nil && len(value.Values) == 0
}

func isEmbedded(group *ast.GenDecl, value *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{group.Doc, value.Doc} {
		if doc == nil {
			continue
		}
		for _, comment := range doc.List {
			if strings.HasPrefix(comment.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

func isSelector(e ast.Expr, pkg, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	ident, ok := selector.X.(*ast.Ident)
	return ok && ident.Name == pkg
}
