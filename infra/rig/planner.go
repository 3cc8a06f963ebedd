package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Policy writes a planner's policy into the stack's folder and gives the file's
// name, for --policy.
func (e *Env) Policy(name, yaml string) (file string, err error) {
	file = filepath.Join(e.Dir, name+".yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o644); err != nil {
		return "", fmt.Errorf("write the policy: %w", err)
	}
	return file, nil
}

// Edits are the edits of a topic that are in force, from an epoch on.
func (e *Env) Edits(ctx context.Context, name string, from uint64) (list []topic.Layout, err error) {
	t, err := e.Store.Topic(ctx, name)
	if err != nil {
		return nil, err
	}
	layouts, err := t.Layouts(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range layouts {
		if !l.Pending && l.Epoch >= from && l.Edit.Kind != topic.EditCreate {
			list = append(list, l)
		}
	}
	return list, nil
}

// Planned tells whether a planner has decided on an edit, and its reason.
func Planned(e topic.Edit) (reason string, ok bool) { return strings.CutPrefix(e.Reason, "planner: ") }
