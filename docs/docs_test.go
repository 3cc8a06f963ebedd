// Package docs has no code: its tests keep the documents true.
package docs

import (
	"fmt"
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
	fence   = regexp.MustCompile("(?ms)^```[^\n]*\n(.*?)^```$")
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

// code is what a document shows as code: blocks, and what is in backticks.
func code(text string) []string {
	var lines []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(m[1], "\n")...)
	}
	for _, m := range inTicks.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// TestMakeTargets: what documents tell people to make can be made.
func TestMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+):.*## `).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	used := 0
	for _, doc := range documents(t) {
		for _, line := range code(read(t, doc)) {
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "make" {
				continue
			}
			for _, target := range words[1:] {
				if !strings.Contains(target, "=") && !targets[target] {
					t.Errorf("%s: make %s: no such target", doc, target)
				}
				used++
			}
		}
	}
	if used == 0 {
		t.Error("no document mentions a make target: the test looks at the wrong thing")
	}
}

// later are commands that documents mention as not there yet.
var later = []string{"lanes"}

// TestCommands: commands and flags that documents show exist.
func TestCommands(t *testing.T) {
	uses, flags := commandLine(t)
	var shown int
	for _, doc := range documents(t) {
		for _, line := range code(read(t, doc)) {
			for _, part := range strings.Split(line, "|") {
				part, _, _ = strings.Cut(part, " #")
				words := strings.Fields(part)
				if len(words) < 2 || words[0] != "spillway" && words[0] != "bin/spillway" {
					continue
				}
				shown++
				if problem := checkCommand(words[1:], uses, flags); problem != "" {
					t.Errorf("%s: %q: %s", doc, part, problem)
				}
			}
		}
	}
	if shown < 10 {
		t.Errorf("documents show %d commands: the test looks at the wrong thing", shown)
	}
}

// commandLine reads the names of commands and flags from the command's source.
func commandLine(t *testing.T) (uses, flags map[string]bool) {
	t.Helper()
	uses, flags = map[string]bool{"help": true, "completion": true}, map[string]bool{"help": true}
	paths, err := filepath.Glob(filepath.Join(root, "cmd/spillway/*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source of the command: %v", err)
	}
	use := regexp.MustCompile(`Use:\s*"([a-z-]+)`)
	flag := regexp.MustCompile(`"([a-z][a-z0-9-]*)"`)
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range use.FindAllStringSubmatch(string(data), -1) {
			uses[m[1]] = true
		}
		for _, m := range flag.FindAllStringSubmatch(string(data), -1) {
			flags[m[1]] = true
		}
	}
	return uses, flags
}

// checkCommand tells what is wrong with the words after "spillway".
func checkCommand(words []string, uses, flags map[string]bool) string {
	groups := []string{"topic", "run"} // commands whose next word is a command too
	if words[0] == "help" && len(words) > 1 {
		words = words[1:]
	}
	if slices.Contains(later, words[0]) {
		return ""
	}
	if !uses[words[0]] {
		return "no such command"
	}
	if slices.Contains(groups, words[0]) && len(words) > 1 && !uses[words[1]] {
		return "no such command"
	}
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && !flags[name] {
			return "no flag --" + name
		}
	}
	return ""
}

// TestMetrics: OPERATIONS lists the metrics that there are.
func TestMetrics(t *testing.T) {
	text := read(t, "docs/OPERATIONS.md")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(spillway_\\w+)`").FindAllStringSubmatch(text, -1) {
		documented[m[1]] = true
	}
	made := regexp.MustCompile(`(?:counter|gauge|histogram)\("(\w+)"`).FindAllStringSubmatch(read(t, "ingest/metrics.go"), -1)
	if len(made) == 0 {
		t.Fatal("found no metrics in ingest/metrics.go")
	}
	for _, m := range made {
		name := "spillway_ingest_" + m[1]
		if !documented[name] {
			t.Errorf("OPERATIONS.md does not list %s", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("OPERATIONS.md lists %s, which does not exist", name)
	}
}

// TestErrors: the errors that OPERATIONS explains exist.
func TestErrors(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"ingest", "client", "internal/filer", "internal/filer/commitlog", "internal/segment", "internal/lane"} {
		paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(data)
		}
	}
	name := regexp.MustCompile("`(Err[A-Z]\\w+|[A-Z]\\w+Error)`")
	for _, m := range name.FindAllStringSubmatch(read(t, "docs/OPERATIONS.md"), -1) {
		declared := regexp.MustCompile(fmt.Sprintf(`(?m)^(type %[1]s |var %[1]s |\s+%[1]s +=)`, m[1]))
		if !declared.MatchString(source.String()) {
			t.Errorf("OPERATIONS.md explains %s, which does not exist", m[1])
		}
	}
}

// TestRules: PROTOCOL has every rule that is cited, in order and once.
func TestRules(t *testing.T) {
	rules := regexp.MustCompile(`(?m)^\*\*(\d+)\.(?: ●)?\*\* `).FindAllStringSubmatch(read(t, "docs/PROTOCOL.md"), -1)
	for i, m := range rules {
		if m[1] != strconv.Itoa(i+1) {
			t.Fatalf("rule %d of PROTOCOL.md has the number %s", i+1, m[1])
		}
	}
	if len(rules) != 39 {
		t.Fatalf("PROTOCOL.md has %d rules, want 39", len(rules))
	}
}
