//go:build linux

package rig

import "syscall"

// childAttr gives a child its own process group, so that an interrupt from the
// keyboard reaches only us, and has the kernel kill it when we die.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
