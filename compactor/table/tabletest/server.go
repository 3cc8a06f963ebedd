package tabletest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	icetable "github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Server is an Iceberg catalog in memory, which keeps tables' metadata on a filer
// as real ones do. Tables' metadata is made, checked and changed by iceberg-go,
// of which SeaweedFS's catalog makes use too. It may be used concurrently, through
// any number of clients.
type Server struct {
	latecomers
	store     filer.Store // without faults
	warehouse string

	mu         sync.Mutex
	namespaces map[string]bool
	tables     map[string]*state
	commits    int
}

type state struct {
	meta     icetable.Metadata
	location string // of the metadata file
	version  int
}

// NewServer returns a catalog without tables.
func NewServer(store filer.Store, warehouse string) *Server {
	return &Server{store: store, warehouse: warehouse, namespaces: map[string]bool{}, tables: map[string]*state{}}
}

// Client returns a way into the catalog for one actor. A nil hook injects no faults.
func (s *Server) Client(hook Hook) *Client {
	return &Client{server: s, faults: &injector{hook: hook, delay: s.add}}
}

// Commits is how many commits had an effect.
func (s *Server) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commits
}

func key(id icetable.Identifier) string { return strings.Join(id, ".") }

func (s *Server) createNamespace(ns icetable.Identifier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespaces[key(ns)] {
		return fmt.Errorf("namespace %s: %w", key(ns), catalog.ErrNamespaceAlreadyExists)
	}
	s.namespaces[key(ns)] = true
	return nil
}

func (s *Server) createTable(ctx context.Context, id icetable.Identifier, schema *iceberg.Schema, opts []catalog.CreateTableOpt) (*state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.namespaces[key(id[:len(id)-1])]:
		return nil, fmt.Errorf("table %s: %w", key(id), catalog.ErrNoSuchNamespace)
	case s.tables[key(id)] != nil:
		return nil, fmt.Errorf("table %s: %w", key(id), catalog.ErrTableAlreadyExists)
	}
	cfg := catalog.NewCreateTableCfg()
	for _, o := range opts {
		o(&cfg)
	}
	if cfg.SortOrder.Len() == 0 {
		cfg.SortOrder = icetable.UnsortedSortOrder
	}
	unique := uuid.New()
	location := fmt.Sprintf("s3://%s/%s-%s", s.warehouse, strings.Join(id, "/"), unique)
	meta, err := icetable.NewMetadataWithUUID(schema, cfg.PartitionSpec, cfg.SortOrder, location, cfg.Properties, unique)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rest.ErrBadRequest, err)
	}
	st, err := s.write(ctx, meta, 1)
	if err != nil {
		return nil, err
	}
	s.tables[key(id)] = st
	return st, nil
}

// write gives the metadata a file, and reads it back as a client would.
func (s *Server) write(ctx context.Context, meta icetable.Metadata, version int) (*state, error) {
	data, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rest.ErrServerError, err)
	}
	if meta, err = icetable.ParseMetadataBytes(data); err != nil {
		return nil, fmt.Errorf("%w: %w", rest.ErrServerError, err)
	}
	location := fmt.Sprintf("%s/metadata/v%d-%s.metadata.json", meta.Location(), version, uuid.New())
	path := "/buckets/" + strings.TrimPrefix(location, "s3://")
	file := filer.File{ID: filer.NewID()}
	if file.Blobs, err = filer.UploadParts(ctx, s.store, path, data); err != nil {
		return nil, fmt.Errorf("%w: %w", rest.ErrServerError, err)
	}
	if err := s.store.Create(ctx, path, file); err != nil {
		return nil, fmt.Errorf("%w: %w", rest.ErrServerError, err)
	}
	return &state{meta, location, version}, nil
}

func (s *Server) load(id icetable.Identifier) (*state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.tables[key(id)]
	if st == nil {
		return nil, fmt.Errorf("table %s: %w", key(id), catalog.ErrNoSuchTable)
	}
	return st, nil
}

func (s *Server) commit(ctx context.Context, id icetable.Identifier, c change) (*state, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.tables[key(id)]
	if st == nil {
		return nil, fmt.Errorf("table %s: %w", key(id), catalog.ErrNoSuchTable)
	}
	for _, r := range c.requirements {
		if err := r.Validate(st.meta); err != nil {
			return nil, fmt.Errorf("%w: %w", rest.ErrCommitFailed, err)
		}
	}
	meta, err := icetable.UpdateTableMetadata(st.meta, c.updates, st.location)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", rest.ErrBadRequest, err)
	}
	next, err := s.write(ctx, meta, st.version+1)
	if err != nil {
		return nil, err
	}
	s.tables[key(id)] = next
	s.commits++
	return next, nil
}

func (s *Server) drop(id icetable.Identifier) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tables[key(id)] == nil {
		return fmt.Errorf("table %s: %w", key(id), catalog.ErrNoSuchTable)
	}
	delete(s.tables, key(id))
	return nil
}

// Tables lists the tables that there are, sorted.
func (s *Server) Tables() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.tables))
}

// change is a commit as it goes over the wire.
type change struct {
	requirements icetable.Requirements
	updates      icetable.Updates
}

func overTheWire(reqs []icetable.Requirement, updates []icetable.Update) (c change, err error) {
	data, err := json.Marshal(reqs)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c.requirements); err != nil {
		return c, err
	}
	if data, err = json.Marshal(updates); err != nil {
		return c, err
	}
	return c, json.Unmarshal(data, &c.updates)
}
