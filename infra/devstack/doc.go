// Package devstack runs all that Spillway needs on one machine, out of one
// folder and on the loopback interface only: a nats-server with JetStream, in
// the same process unless told otherwise, and `weed mini` (SeaweedFS) as a child
// process. It is what `spillway dev`, the tests, the benchmarks and the chaos
// runs stand on; it is not a way to run anything in production.
//
// A folder holds at most one running stack, guarded by a file lock. Data, ports
// and S3 keys stay in the folder between runs:
//
//	stack.json   where everything is, readable by the owner only (see [Load])
//	lock         the lock; inside, the process id of the holder
//	s3.json      SeaweedFS's S3 identities, with the keys made for this folder
//	nats/        JetStream's store
//	weed/        SeaweedFS's data
//	*.pid        process ids of the children
//	logs/        weed.log, nats.log
package devstack
