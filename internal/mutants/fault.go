package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// fault is one token of a file that is replaced by another.
type fault struct {
	path     string // of the file
	name     string // of the file, relative to the module
	line     int
	offset   int // of old, in bytes
	old, new string
	text     string // the line, without its indentation
}

// String names the fault as a compiler names a mistake.
func (f fault) String() string {
	return fmt.Sprintf("%s:%d: %s for %s in: %s", f.name, f.line, f.new, f.old, f.text)
}

// key names the fault where line numbers change.
func (f fault) key() string {
	return fmt.Sprintf("%s: %s for %s in: %s", f.name, f.new, f.old, f.text)
}

// plant returns the file with the fault in it.
func (f fault) plant() ([]byte, error) {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, err
	}
	return slices.Concat(text[:f.offset], []byte(f.new), text[f.offset+len(f.old):]), nil
}

// swaps are the operators that are taken for each other.
var swaps = map[token.Token][]token.Token{
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.INC: {token.DEC}, token.DEC: {token.INC},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN},
	token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
}

// findFaults lists the faults that can be planted in the files of a folder, in the order of the text.
func findFaults(dir string, files []string, root string) ([]fault, error) {
	var found []fault
	for _, file := range files {
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		add := func(pos token.Pos, old string, news ...string) {
			at := set.Position(pos)
			for _, next := range news {
				found = append(found, fault{path: path, name: filepath.ToSlash(name), line: at.Line, offset: at.Offset,
					old: old, new: next, text: lineAt(text, at.Offset)})
			}
		}
		ast.Inspect(tree, func(n ast.Node) bool { return inspect(n, add) })
	}
	return found, nil
}

// inspect adds the faults of one node. It returns false for nodes in which no fault is planted.
func inspect(n ast.Node, add func(pos token.Pos, old string, news ...string)) bool {
	swap := func(pos token.Pos, op token.Token) {
		for _, other := range swaps[op] {
			add(pos, op.String(), other.String())
		}
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.IMPORT
	case *ast.BinaryExpr:
		if !isText(n.X) && !isText(n.Y) { // "a" - "b" does not compile
			swap(n.OpPos, n.Op)
		}
	case *ast.IncDecStmt:
		swap(n.TokPos, n.Tok)
	case *ast.AssignStmt:
		swap(n.TokPos, n.Tok)
	case *ast.BranchStmt:
		if n.Label == nil {
			swap(n.TokPos, n.Tok)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			add(n.OpPos, "!", "")
		}
	case *ast.Ident:
		switch n.Name {
		case "true":
			add(n.NamePos, "true", "false")
		case "false":
			add(n.NamePos, "false", "true")
		}
	}
	return true
}

// isText reports whether x is a string literal.
func isText(x ast.Expr) bool {
	lit, ok := x.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}

func lineAt(text []byte, offset int) string {
	begin := bytes.LastIndexByte(text[:offset], '\n') + 1
	end := bytes.IndexByte(text[offset:], '\n')
	if end < 0 {
		end = len(text) - offset
	}
	return strings.TrimSpace(string(text[begin : offset+end]))
}

// shuffle orders faults at random, the same way for the same seed.
func shuffle(faults []fault, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
}
