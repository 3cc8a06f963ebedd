// Package docs has no code: its tests keep the documents true.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = ".."
	module = "github.com/spillway-mq/spillway/"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// parse gives the Go files at a path, which is a file or a package's folder.
// Tests are left out.
func parse(t *testing.T, path string) []*ast.File {
	t.Helper()
	paths := []string{filepath.Join(root, path)}
	if !strings.HasSuffix(path, ".go") {
		var err error
		if paths, err = filepath.Glob(filepath.Join(root, path, "*.go")); err != nil {
			t.Fatal(err)
		}
	}
	var files []*ast.File
	for _, p := range paths {
		if strings.HasSuffix(p, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		t.Fatalf("no Go files in %s", path)
	}
	return files
}

func imports(files []*ast.File, pkg string) bool {
	return slices.ContainsFunc(files, func(f *ast.File) bool {
		return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == strconv.Quote(module+pkg)
		})
	})
}

// calls lists what the files call, as "x.f" for x.f(...) and a.x.f(...).
func calls(files []*ast.File) map[string]bool {
	found := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				switch x := s.X.(type) {
				case *ast.Ident:
					found[x.Name+"."+s.Sel.Name] = true
				case *ast.SelectorExpr:
					found[x.Sel.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	return found
}

// TestStraightLine: a record goes through five places, each of which calls the
// next, and ARCHITECTURE names them in that order.
func TestStraightLine(t *testing.T) {
	line := []struct {
		place string
		pkg   string // where the step's calls are looked for
		next  string // the package it imports to reach the next place
		calls []string
	}{
		{"functions/ingest.go", "functions/ingest.go", "ingest", []string{"ingest.NewWorker", "w.Run"}},
		{"ingest/worker.go", "ingest", "internal/segment", []string{"w.session", "segment.Prepare", "segment.Append", "segment.Confirm"}},
		{"internal/segment/append.go", "internal/segment/append.go", "", []string{"log.Append"}},
		{"internal/filer/commitlog", "internal/filer/commitlog", "internal/filer", []string{"filer.Create", "store.Lookup"}},
		{"internal/filer/seaweed", "internal/filer/seaweed", "internal/filer", nil},
	}
	text, at := read(t, "docs/ARCHITECTURE.md"), 0
	for _, step := range line {
		if _, err := os.Stat(filepath.Join(root, step.place)); err != nil {
			t.Fatal(err)
		}
		i := strings.Index(text[at:], step.place)
		if i < 0 {
			t.Fatalf("ARCHITECTURE.md does not name %s where the straight line has it", step.place)
		}
		at += i
		files := parse(t, step.pkg)
		if step.next != "" && !imports(files, step.next) {
			t.Errorf("%s does not import %s", step.place, step.next)
		}
		made := calls(files)
		for _, c := range step.calls {
			if !made[c] {
				t.Errorf("%s does not call %s", step.place, c)
			}
		}
	}
	if !imports(parse(t, "internal/segment"), "internal/filer/commitlog") {
		t.Error("internal/segment does not import internal/filer/commitlog")
	}
	if !slices.ContainsFunc(parse(t, "internal/filer/seaweed"), implementsStore) {
		t.Error("internal/filer/seaweed does not say that it implements filer.Store")
	}
}

// implementsStore looks for "var _ filer.Store = ...".
func implementsStore(f *ast.File) bool {
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		g, ok := d.(*ast.GenDecl)
		return ok && g.Tok == token.VAR && slices.ContainsFunc(g.Specs, func(s ast.Spec) bool {
			v, ok := s.(*ast.ValueSpec)
			if !ok || v.Names[0].Name != "_" {
				return false
			}
			sel, ok := v.Type.(*ast.SelectorExpr)
			if !ok {
				return false
			}
			pkg, ok := sel.X.(*ast.Ident)
			return ok && pkg.Name == "filer" && sel.Sel.Name == "Store"
		})
	})
}

// TestFolders: the table of folders names every package, and nothing else.
func TestFolders(t *testing.T) {
	text := read(t, "docs/ARCHITECTURE.md")
	_, table, _ := strings.Cut(text, "## Folders")
	table, _, _ = strings.Cut(table, "## ")
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(table, -1) {
		for _, name := range inTicks.FindAllStringSubmatch(m[1], -1) {
			if info, err := os.Stat(filepath.Join(root, name[1])); err != nil || !info.IsDir() {
				t.Errorf("ARCHITECTURE.md names the folder %s: %v", name[1], err)
			}
		}
	}
	for _, dir := range []string{"internal", "internal/filer"} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if name := dir + "/" + e.Name(); e.IsDir() && e.Name() != "testdata" && !strings.Contains(table, "`"+name+"`") {
				t.Errorf("ARCHITECTURE.md does not name %s", name)
			}
		}
	}
}

var (
	inTicks = regexp.MustCompile("`([^`\n]+)`")
	fence   = regexp.MustCompile("(?ms)^```[^\n]*$\n(.*?)\n```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	goPath  = regexp.MustCompile(`^(?:functions|ingest|client|internal|infra|cmd)/[\w/.*-]+$`)
)

// documents are all Markdown files of the project, relative to its root.
func documents(t *testing.T) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			rel, err := filepath.Rel(root, path)
			list = append(list, rel)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// slug is the anchor that GitHub gives a heading.
func slug(title string) string {
	var b strings.Builder
	for _, c := range strings.ToLower(title) {
		switch {
		case c == ' ', c == '-':
			b.WriteByte('-')
		case c == '_', c >= '0' && c <= '9', c >= 'a' && c <= 'z':
			b.WriteRune(c)
		}
	}
	return b.String()
}

// TestLinks: links between documents lead to files and headings that are there.
func TestLinks(t *testing.T) {
	docs := documents(t)
	if len(docs) < 14 {
		t.Fatalf("found only %q", docs)
	}
	for _, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, doc), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := doc
			if file != "" {
				target = filepath.Join(filepath.Dir(doc), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: link %s: %v", doc, m[1], err)
				continue
			}
			if anchor != "" && !slices.ContainsFunc(heading.FindAllStringSubmatch(read(t, target), -1),
				func(h []string) bool { return slug(h[1]) == anchor }) {
				t.Errorf("%s: link %s: no such heading", doc, m[1])
			}
		}
	}
}

// TestPaths: source files that documents name in backticks are there.
func TestPaths(t *testing.T) {
	for _, doc := range documents(t) {
		for _, m := range inTicks.FindAllStringSubmatch(fence.ReplaceAllString(read(t, doc), ""), -1) {
			if !goPath.MatchString(m[1]) {
				continue
			}
			if found, err := filepath.Glob(filepath.Join(root, m[1])); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there", doc, m[1])
			}
		}
	}
}
