// Package functions wires the roles into what is deployed: one file per
// function, each run resident or once with a deadline, with outcomes turned
// into exit codes in one place.
package functions
