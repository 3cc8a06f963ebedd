package seaweed

import "github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

// Translate is translate, for tests of what the filer's events say.
var Translate = translate

// Steps are those of a stream's messages.
func Steps(s Scope, messages []*filer_pb.SubscribeMetadataResponse) (steps []Step) {
	r := logReader{scope: s}
	for _, m := range messages {
		steps = append(steps, r.step(m))
	}
	return steps
}
