// Package backfill keeps jobs: files of many records that are to become records of
// a topic. A job is an ordered list of objects, with their ETags, how they are read,
// and how they are divided into sources. All of that is frozen in a file that is
// created exclusively, never changed, and lives as long as the topic (rule 38):
//
//	found, err := backfill.Prefix{Bucket: "in", Prefix: "2025/"}.List(ctx, s3)
//	read, err := backfill.Formats(backfill.Read{Key: "/id"}, found.Objects, backfill.As{})
//	job, err := backfill.Of(store, topic).Create(ctx, backfill.Job{
//		By: "cli", Origin: "s3://in/2025/", Read: read, Sources: backfill.Divide(found.Objects, "", 8),
//	})
//
// A position in a source is the number of the object, from 1, and the row in it,
// from 0. What of a job is done is said by the checkpoints of its sources and by
// nothing else; a source is finished when its checkpoint is past its last object. The
// state beside the job's file says whether the job is to be worked on, by whom, and
// how fast. It is for people: nothing rests on it, and two processes that work on
// the same job do no harm.
//
// Objects of jobs are not read here. Nor is it asked which buckets a topic
// allows: that is about what records may refer to. A backfill reads with the rights of
// whoever runs it, and copies.
package backfill
