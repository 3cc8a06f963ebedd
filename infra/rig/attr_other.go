//go:build !linux

package rig

import "syscall"

// childAttr is nothing special: here a child outlives us if we are killed.
func childAttr() *syscall.SysProcAttr { return nil }
