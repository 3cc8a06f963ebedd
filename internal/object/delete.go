package object

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Delete deletes an object; where its bucket has versions, it puts a delete marker.
// That there is no such object is no error. With ifMatch it asks the endpoint to do so
// only if the object has this ETag: AWS and SeaweedFS heed that, others may delete it
// all the same, and an object that is not there is ErrChanged then.
func (s *Store) Delete(ctx context.Context, n Name, ifMatch string) error {
	if err := n.Check(); err != nil {
		return fmt.Errorf("delete %s: %w", quote(n), err)
	}
	if n.Version != "" {
		return failed("delete", n, ErrInvalid, "single versions are not deleted")
	}
	in := &s3.DeleteObjectInput{Bucket: &n.Bucket, Key: &n.Key}
	if ifMatch != "" {
		in.IfMatch = aws.String(`"` + ifMatch + `"`)
	}
	if _, err := s.api.DeleteObject(ctx, in); err != nil {
		return fail(ctx, "delete", n, err)
	}
	return nil
}
