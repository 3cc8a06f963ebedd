package seaweed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"golang.org/x/sync/singleflight"
)

const (
	locationTTL = 30 * time.Second
	maxVolumes  = 10000 // remembered; beyond it all are forgotten
)

// locations remembers where volumes are. What it says may be out of date: a
// volume moves when a cluster is rebalanced.
type locations struct {
	rpc    filer_pb.SeaweedFilerClient
	public bool
	asking singleflight.Group

	mu    sync.Mutex
	known map[string]location
}

type location struct {
	hosts []string
	until time.Time
}

func newLocations(rpc filer_pb.SeaweedFilerClient, public bool) *locations {
	return &locations{rpc: rpc, public: public, known: map[string]location{}}
}

// find returns the servers that hold a blob. Fresh is false when they come from
// memory.
func (l *locations) find(ctx context.Context, blobID string) (hosts []string, fresh bool, err error) {
	vid, _, ok := strings.Cut(blobID, ",")
	if !ok {
		return nil, true, fmt.Errorf("blob id %q names no volume", blobID)
	}
	l.mu.Lock()
	loc, ok := l.known[vid]
	l.mu.Unlock()
	if ok && time.Now().Before(loc.until) {
		return loc.hosts, false, nil
	}
	hosts, err = l.ask(ctx, vid)
	return hosts, true, err
}

// forget makes the next find ask the filer.
func (l *locations) forget(blobID string) {
	vid, _, _ := strings.Cut(blobID, ",")
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, vid)
}

// ask looks a volume up. The calls of many readers of one volume become one.
func (l *locations) ask(ctx context.Context, vid string) ([]string, error) {
	result := l.asking.DoChan(vid, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaultTimeout)
		defer cancel()
		resp, err := l.rpc.LookupVolume(ctx, &filer_pb.LookupVolumeRequest{VolumeIds: []string{vid}})
		if err != nil {
			return nil, callError(ctx, err)
		}
		return l.remember(vid, resp.LocationsMap[vid].GetLocations()), nil
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("look up volume %s: %w", vid, ctx.Err())
	case r := <-result:
		if r.Err != nil {
			return nil, fmt.Errorf("look up volume %s: %w", vid, r.Err)
		}
		hosts := r.Val.([]string)
		if len(hosts) == 0 {
			return nil, fmt.Errorf("volume %s is on no server now", vid)
		}
		return hosts, nil
	}
}

func (l *locations) remember(vid string, locs []*filer_pb.Location) []string {
	var hosts, far []string
	for _, loc := range locs {
		if loc.DataInRemote {
			far = append(far, l.host(loc))
		} else {
			hosts = append(hosts, l.host(loc))
		}
	}
	hosts = append(hosts, far...)
	if len(hosts) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) >= maxVolumes {
		clear(l.known)
	}
	l.known[vid] = location{hosts: hosts, until: time.Now().Add(locationTTL)}
	return hosts
}

func (l *locations) host(loc *filer_pb.Location) string {
	if l.public && loc.PublicUrl != "" {
		return loc.PublicUrl
	}
	return loc.Url
}
