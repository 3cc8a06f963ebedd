//go:build linux

package devstack

import "syscall"

// childAttr gives a child its own process group, so that an interrupt from the
// keyboard reaches only us, and has the kernel kill it when we die.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
