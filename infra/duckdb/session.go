package duckdb

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // for what is embedded below
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

//go:embed query.mjs
var program string

// Row is a row of a result, by the names of its columns. Values are nil, bool, int64,
// *big.Int where that is too small, float64, string, []byte, time.Time in UTC,
// [Decimal], []any and map[string]any; what has no type of its own here is a string.
type Row = map[string]any

// Decimal is an exact number as text.
type Decimal string

// Result is what a statement gave.
type Result struct {
	Rows []Row
	Took time.Duration // from the statement to its last row, as DuckDB's process saw it
}

// SQLError is what DuckDB has against a statement.
type SQLError struct {
	SQL     string
	Message string
}

func (e *SQLError) Error() string { return fmt.Sprintf("DuckDB: %s\nin: %s", e.Message, e.SQL) }

// DB is an empty database in memory, in a process of its own. Its methods may be called
// concurrently: it does one thing after the other.
type DB struct {
	mu   sync.Mutex
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	diag bytes.Buffer
	err  error // why it can do nothing any more
}

// Query finds DuckDB and runs one statement in an empty database. Parameters are those
// that [DB.Query] takes.
func Query(ctx context.Context, sql string, params ...any) (_ []Row, err error) {
	e, err := Find()
	if err != nil {
		return nil, err
	}
	db, err := e.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	result, err := db.Query(ctx, sql, params...)
	return result.Rows, err
}

// Open starts a process. It ends with the context, or by Close.
func (e Engine) Open(ctx context.Context) (*DB, error) {
	db := &DB{cmd: exec.CommandContext(ctx, e.Node, "--input-type=module", "--eval", program, "--", e.Dir)}
	db.cmd.Stderr = &db.diag
	var err error
	if db.in, err = db.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start DuckDB: %w", err)
	}
	out, err := db.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start DuckDB: %w", err)
	}
	db.out = bufio.NewReaderSize(out, 1<<20)
	if err := db.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start DuckDB: %w", err)
	}
	return db, nil
}

// Query runs one statement and gives all its rows, which have to fit into memory.
// Parameters, $1 and so on in the statement, are nil, bool, int, int64, float64, string,
// []byte or time.Time. After a [*SQLError] the database goes on; after any other error,
// that of an ended context too, it is of no more use.
func (db *DB) Query(ctx context.Context, sql string, params ...any) (Result, error) {
	encoded, err := encodeAll(params)
	if err != nil {
		return Result{}, err
	}
	request, err := json.Marshal(map[string]any{"sql": sql, "params": encoded})
	if err != nil {
		return Result{}, fmt.Errorf("ask DuckDB: %w", err)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.err != nil {
		return Result{}, db.err
	}
	stop := context.AfterFunc(ctx, func() { _ = db.cmd.Process.Kill() }) // fails if it has ended
	defer stop()
	result, err := db.ask(sql, append(request, '\n'))
	var bad *SQLError
	if err != nil && !errors.As(err, &bad) {
		db.err = db.gone(ctx, err)
		err = db.err
	}
	return result, err
}

func (db *DB) ask(sql string, request []byte) (Result, error) {
	if _, err := db.in.Write(request); err != nil {
		return Result{}, err
	}
	var result Result
	for {
		line, err := db.out.ReadBytes('\n')
		if err != nil {
			return Result{}, err
		}
		a, err := decodeAnswer(line)
		switch {
		case err != nil:
			return Result{}, err
		case a.Error != "":
			return Result{}, &SQLError{sql, a.Error}
		case a.Done == nil:
			result.Rows = append(result.Rows, a.row)
		case a.Done.Rows != len(result.Rows):
			return Result{}, fmt.Errorf("%d rows came of %d", len(result.Rows), a.Done.Rows)
		default:
			result.Took = time.Duration(a.Done.MS * float64(time.Millisecond))
			return result, nil
		}
	}
}

// gone ends the process and tells why it is of no more use.
func (db *DB) gone(ctx context.Context, err error) error {
	_ = db.cmd.Process.Kill() // fails if it has ended
	_ = db.cmd.Wait()         // says that it was killed
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("DuckDB's process is of no more use: %w: %s", err, bytes.TrimSpace(db.diag.Bytes()))
}

// Close ends the process and waits for its end. The error of an earlier call is not told
// again.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.err != nil {
		return nil
	}
	db.err = errors.New("DuckDB was closed")
	if err := errors.Join(db.in.Close(), db.cmd.Wait()); err != nil {
		return fmt.Errorf("end DuckDB: %w: %s", err, bytes.TrimSpace(db.diag.Bytes()))
	}
	return nil
}
