package functions

import (
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// NewJudge decides about references to objects behind an endpoint, as it is called
// in the settings. Those that live on the filer are pinned.
func NewJudge(objects *object.Store, endpoint string, f filer.Store) *verdict.Judge {
	j := &verdict.Judge{Objects: objects, Endpoint: endpoint}
	if entries, ok := f.(filer.Objects); ok {
		j.Pins = &pin.Pins{Filer: entries, Now: time.Now}
	}
	return j
}
