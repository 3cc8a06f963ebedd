//go:build unix && !linux

package devstack

import "syscall"

// childAttr gives a child its own process group, so that an interrupt from the
// keyboard reaches only us. Nothing kills the child when we are killed; the next
// start does it, see reapOrphan.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
