// Package bubble is for tests in virtual time: those that run in a bubble of
// testing/synctest.
package bubble

import (
	"testing/synctest"
	"time"
)

// Pass lets virtual time pass, and what falls due in it happen: it returns when
// every other goroutine of the bubble waits for something. It panics outside of a
// bubble, so that no test waits in real time. For one goroutine of a bubble at a
// time.
func Pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
