package segment

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// DeclaredLoad is a load that somebody says is going to come, so that segments for
// it are there before it is.
type DeclaredLoad struct {
	ID      string    `json:"id"`      // whoever declares it again by the same id replaces it
	Bytes   uint64    `json:"bytes"`   // per second
	Records uint64    `json:"records"` // per second; 0 with Bytes > 0: not known
	From    time.Time `json:"from"`    // when it was declared
	Until   time.Time `json:"until"`
	Reason  string    `json:"reason"`
}

// MaxDeclared bounds the declared loads of a topic.
const MaxDeclared = 1000

// maxReason bounds the reason of a declaration, in bytes.
const maxReason = 1000

// ErrTooManyDeclared says that the topic has MaxDeclared declared loads.
var ErrTooManyDeclared = fmt.Errorf("there are %d declared loads already; withdraw some", MaxDeclared)

// Over tells whether the load has ended.
func (d DeclaredLoad) Over(now time.Time) bool { return !now.Before(d.Until) }

// Validate reports everything that is wrong with a declaration.
func (d DeclaredLoad) Validate() error {
	errs := []error{CheckDeclaredID(d.ID)}
	if d.Bytes == 0 && d.Records == 0 {
		errs = append(errs, errors.New("it is no load: want bytes or records per second"))
	}
	if !d.Until.After(d.From) {
		errs = append(errs, fmt.Errorf("it ends at %s, before it begins", d.Until.Format(time.RFC3339)))
	}
	if len(d.Reason) > maxReason {
		errs = append(errs, fmt.Errorf("its reason has %d bytes, at most %d are allowed", len(d.Reason), maxReason))
	}
	return errors.Join(errs...)
}

// CheckDeclaredID tells what is wrong with the id of a declared load. It becomes a
// file's name.
func CheckDeclaredID(id string) error {
	if id == "" || len(id) > topic.MaxName || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return fmt.Errorf("id %.60q: want 1 to %d of a-z, 0-9, - and _", id, topic.MaxName)
	}
	return nil
}

const declaredExt = ".json"

func (t *Topic) declaredDir() string { return path.Join(t.Dir(), "declared") }

func (t *Topic) declared(id string) cursor.File[DeclaredLoad] {
	return cursor.At[DeclaredLoad](t.store.Filer, path.Join(t.declaredDir(), id+declaredExt))
}

// Declare stores a load, instead of one of the same id, and sees to it that a
// planner will look at the topic, which then knows it. Any number may race; the
// last one counts. ErrTooManyDeclared is typed.
func (t *Topic) Declare(ctx context.Context, d DeclaredLoad) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("declared load of topic %q: %w", t.Name, err)
	}
	others, err := t.declaredIDs(ctx)
	if err != nil {
		return err
	}
	if len(others) >= MaxDeclared { // of which this may be one; that is near enough
		return fmt.Errorf("topic %q: %w", t.Name, ErrTooManyDeclared)
	}
	if err := t.wake(ctx); err != nil {
		return err
	}
	file := t.declared(d.ID)
	for {
		_, err := file.Create(ctx, d)
		if !errors.Is(err, filer.ErrExists) {
			return err
		}
		version, err := versionOf(ctx, file)
		if err == nil {
			_, err = file.Save(ctx, d, version)
		}
		if !errors.Is(err, filer.ErrConflict) && !errors.Is(err, filer.ErrNotFound) {
			return err
		}
	}
}

// versionOf is the version of a declaration, whatever is in it.
func versionOf(ctx context.Context, file cursor.File[DeclaredLoad]) (cursor.Version, error) {
	_, version, err := file.Load(ctx)
	if errors.Is(err, filer.ErrCorrupt) {
		err = file.Delete(ctx, "") // nobody can use it
		if err == nil {
			err = filer.ErrNotFound
		}
	}
	return version, err
}

// Withdraw takes a declared load back. filer.ErrNotFound: there is none.
func (t *Topic) Withdraw(ctx context.Context, id string) error {
	if err := CheckDeclaredID(id); err != nil {
		return fmt.Errorf("declared load of topic %q: %w", t.Name, err)
	}
	if _, _, err := t.declared(id).Load(ctx); err != nil && !errors.Is(err, filer.ErrCorrupt) {
		return err
	}
	return t.declared(id).Delete(ctx, "")
}

// Expire takes a declared load back if it is over at a time. That there is none, or
// that it was declared anew meanwhile, is no error.
func (t *Topic) Expire(ctx context.Context, id string, now time.Time) error {
	d, version, err := t.declared(id).Load(ctx)
	if err == nil && d.Over(now) {
		err = t.declared(id).Delete(ctx, version)
	}
	if errors.Is(err, filer.ErrNotFound) || errors.Is(err, filer.ErrConflict) {
		return nil
	}
	return err
}

// Declared lists the declared loads by id, those that have ended too. What lies
// among them and is none is left out, and logged: planning does not depend on it.
func (t *Topic) Declared(ctx context.Context) ([]DeclaredLoad, error) {
	ids, err := t.declaredIDs(ctx)
	if err != nil {
		return nil, err
	}
	loads := make([]DeclaredLoad, 0, len(ids))
	for _, id := range ids {
		d, _, err := t.declared(id).Load(ctx)
		if err == nil {
			d.ID = id
			if err = d.Validate(); err != nil {
				err = fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
			}
		}
		switch {
		case err == nil:
			loads = append(loads, d)
		case errors.Is(err, filer.ErrCorrupt):
			t.store.Logger.Warn("a declared load is left out: it cannot be read; withdraw it", "topic", t.Name, "id", id, "err", err)
		case !errors.Is(err, filer.ErrNotFound):
			return nil, err
		}
	}
	return loads, nil
}

// declaredIDs lists what is declared, at most MaxDeclared.
func (t *Topic) declaredIDs(ctx context.Context) (ids []string, err error) {
	var page []filer.Entry
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		page, err = t.store.Filer.List(ctx, t.declaredDir(), "", MaxDeclared)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("declared loads of topic %q: %w", t.Name, err)
	}
	for _, e := range page {
		if id, ok := strings.CutSuffix(e.Name(), declaredExt); ok && !e.IsDir && CheckDeclaredID(id) == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
