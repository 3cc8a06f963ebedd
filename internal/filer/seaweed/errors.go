package seaweed

import (
	"context"
	"fmt"
	"strings"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-mq/spillway/internal/filer"
)

// codeError maps the error code in a response to one of our errors, or nil when
// the code says nothing.
func codeError(code filer_pb.FilerError) error {
	switch code {
	case filer_pb.FilerError_ENTRY_ALREADY_EXISTS:
		return filer.ErrExists
	case filer_pb.FilerError_ENTRY_NAME_TOO_LONG,
		filer_pb.FilerError_PARENT_IS_FILE,
		filer_pb.FilerError_EXISTING_IS_DIRECTORY,
		filer_pb.FilerError_EXISTING_IS_FILE:
		return filer.ErrInvalid
	case filer_pb.FilerError_READ_ONLY:
		return filer.ErrReadOnly
	case filer_pb.FilerError_PRECONDITION_FAILED:
		return filer.ErrConflict
	default:
		return nil
	}
}

// responseError turns the two error fields of a response into an error. Text
// without a code is an unknown outcome: a create can fail after its entry was
// written.
func responseError(code filer_pb.FilerError, text string) error {
	if err := codeError(code); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	if code != filer_pb.FilerError_OK || text != "" {
		return fmt.Errorf("filer: %s (%s)", text, code)
	}
	return nil
}

// callError makes sense of a failed gRPC call. What the filer answered by text
// only arrives with the code Unknown, and such texts count only there: in other
// errors they may come from anywhere.
func callError(ctx context.Context, err error) error {
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	switch st.Code() {
	case codes.NotFound:
		return fmt.Errorf("%w: %s", filer.ErrNotFound, st.Message())
	case codes.FailedPrecondition:
		return fmt.Errorf("%w: %s", filer.ErrConflict, st.Message())
	case codes.Unknown:
		if strings.Contains(st.Message(), filer_pb.ErrNotFound.Error()) {
			return fmt.Errorf("%w: %s", filer.ErrNotFound, st.Message())
		}
		if strings.HasPrefix(st.Message(), filer_pb.ErrReadOnly.Error()+": /") {
			return fmt.Errorf("%w: %s", filer.ErrReadOnly, st.Message())
		}
	case codes.Canceled, codes.DeadlineExceeded:
		// The caller's context may be a little ahead of or behind the status.
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %s", ctx.Err(), st.Message())
		}
		if st.Code() == codes.DeadlineExceeded {
			return fmt.Errorf("%w: %s", context.DeadlineExceeded, st.Message())
		}
	}
	return err
}
