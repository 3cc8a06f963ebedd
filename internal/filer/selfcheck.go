package filer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	checkRounds  = 5
	checkWriters = 8
	checkCleanup = 5 * time.Second
)

// RaceError says that a filer let a number of racing writers other than one
// win. On such a filer commit logs lose data, so nobody may write to it.
type RaceError struct {
	Op      string // "create", "update" or "delete"
	Path    string
	Writers int
	Winners []string // the IDs of the writes that were told that they won
	Found   string   // the ID of the file that was there afterwards
}

func (e *RaceError) Error() string {
	return fmt.Sprintf("filer is not safe to write to: %d of %d racing %ss of %s won (%s), and %q was found there",
		len(e.Winners), e.Writers, e.Op, e.Path, strings.Join(e.Winners, ", "), e.Found)
}

// SelfCheck races a few writers on files in a new folder below dir, to find out
// whether creates are exclusive and updates and deletes conditional, as commit
// logs need. It returns a [*RaceError] when they are not, and another error
// when the filer could not be asked. It removes its folder again.
func SelfCheck(ctx context.Context, s Store, dir string) (err error) {
	root := strings.TrimSuffix(dir, "/") + "/selfcheck-" + Token(10)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkCleanup)
		defer cancel()
		if e := s.DeleteTree(ctx, root); e != nil {
			err = errors.Join(err, fmt.Errorf("self-check: clean up %s: %w", root, e))
		}
	}()
	for round := range checkRounds {
		path := fmt.Sprintf("%s/%d", root, round)
		id, err := checkCreate(ctx, s, path)
		if err != nil {
			return fmt.Errorf("self-check: %w", err)
		}
		if id, err = checkUpdate(ctx, s, path, id); err != nil {
			return fmt.Errorf("self-check: %w", err)
		}
		if err = checkDelete(ctx, s, path, id); err != nil {
			return fmt.Errorf("self-check: %w", err)
		}
	}
	return nil
}

func checkCreate(ctx context.Context, s Store, path string) (string, error) {
	return race(ctx, s, "create", path, func(ctx context.Context, f File) (bool, error) {
		err := s.Create(ctx, path, f)
		if errors.Is(err, ErrExists) {
			return false, nil
		}
		return err == nil, err
	})
}

func checkUpdate(ctx context.Context, s Store, path, expect string) (string, error) {
	return race(ctx, s, "update", path, func(ctx context.Context, f File) (bool, error) {
		err := s.Update(ctx, path, expect, f)
		if errors.Is(err, ErrConflict) {
			return false, nil
		}
		return err == nil, err
	})
}

// race lets writers go at once and returns the ID of the one that won.
func race(ctx context.Context, s Store, op, path string, write func(context.Context, File) (bool, error)) (string, error) {
	var (
		mu      sync.Mutex
		winners []string
		start   = make(chan struct{})
	)
	g, gctx := errgroup.WithContext(ctx)
	for range checkWriters {
		g.Go(func() error {
			f := File{ID: NewID(), Content: []byte("spillway self-check")}
			<-start
			won, err := write(gctx, f)
			if err != nil {
				return fmt.Errorf("%s %s: %w", op, path, err)
			}
			if won {
				mu.Lock()
				winners = append(winners, f.ID)
				mu.Unlock()
			}
			return nil
		})
	}
	close(start)
	if err := g.Wait(); err != nil {
		return "", err
	}
	e, err := s.Lookup(ctx, path)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return "", fmt.Errorf("look up %s: %w", path, err)
	}
	if len(winners) != 1 || winners[0] != e.ID {
		slices.Sort(winners)
		return "", &RaceError{Op: op, Path: path, Writers: checkWriters, Winners: winners, Found: e.ID}
	}
	return e.ID, nil
}

func checkDelete(ctx context.Context, s Store, path, id string) error {
	wrong := NewID()
	err := s.Delete(ctx, path, wrong)
	if err != nil && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	e, lookErr := s.Lookup(ctx, path)
	if lookErr != nil && !errors.Is(lookErr, ErrNotFound) {
		return fmt.Errorf("look up %s: %w", path, lookErr)
	}
	if err == nil || e.ID != id {
		return &RaceError{Op: "delete", Path: path, Writers: 1, Winners: []string{wrong}, Found: e.ID}
	}
	if err := s.Delete(ctx, path, id); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	if _, err := s.Lookup(ctx, path); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("look up %s after its deletion: %w", path, errors.Join(err, errors.New("still there")))
	}
	return nil
}
