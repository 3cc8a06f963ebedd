package devstack

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
)

const (
	loopback = "127.0.0.1"

	// grpcOffset is how far above a SeaweedFS HTTP port its gRPC port lies.
	// Clients compute it, so it is not ours to choose.
	grpcOffset = 10000

	// Ports are chosen where even port + grpcOffset lies below the range from
	// which Linux takes the ports of outgoing connections (from 32768 up).
	minPort, maxPort = 10240, 22700
)

// Ports are the TCP ports of a stack, all on 127.0.0.1. Zero: one that is free is
// chosen at the folder's first start and used ever after.
type Ports struct {
	NATS        int `json:"nats"`
	NATSMonitor int `json:"nats_monitor"` // HTTP: /jsz, /healthz, /varz
	Master      int `json:"master"`       // this and the following have gRPC at + 10000
	Volume      int `json:"volume"`
	Filer       int `json:"filer"`
	S3          int `json:"s3"`
	Admin       int `json:"admin"`   // weed mini cannot do without
	Iceberg     int `json:"iceberg"` // REST catalog; this one has no gRPC
}

// all lists the ports, with whether each has a gRPC twin.
func (p *Ports) all() []portRef {
	return []portRef{
		{"nats", &p.NATS, false}, {"nats_monitor", &p.NATSMonitor, false},
		{"master", &p.Master, true}, {"volume", &p.Volume, true}, {"filer", &p.Filer, true},
		{"s3", &p.S3, true}, {"admin", &p.Admin, true}, {"iceberg", &p.Iceberg, false},
	}
}

type portRef struct {
	name string
	port *int
	grpc bool
}

func (r portRef) numbers() []int {
	if r.grpc {
		return []int{*r.port, *r.port + grpcOffset}
	}
	return []int{*r.port}
}

// validate tells of ports that cannot be, and of ports given twice.
func (p Ports) validate() error {
	var errs []error
	users := map[int]string{}
	for _, r := range p.all() {
		if *r.port == 0 {
			continue
		}
		for _, n := range r.numbers() {
			if n < 1 || n > 65535 {
				errs = append(errs, fmt.Errorf("port %d of %s is not between 1 and 65535", n, r.name))
			}
			if other, ok := users[n]; ok {
				errs = append(errs, fmt.Errorf("%s and %s both want port %d", other, r.name, n))
			}
			users[n] = r.name
		}
	}
	return errors.Join(errs...)
}

// or takes from q what p leaves open.
func (p Ports) or(q Ports) Ports {
	theirs := q.all()
	for i, r := range p.all() {
		if *r.port == 0 {
			*r.port = *theirs[i].port
		}
	}
	return p
}

// choose fills in what is open with free ports. Between this and their use
// another process may take one; Start tries again then.
func (p Ports) choose() (Ports, error) {
	var held []net.Listener // so that none is chosen twice
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for _, r := range p.all() {
		for range 1000 {
			if *r.port != 0 {
				break
			}
			*r.port = minPort + rand.IntN(maxPort-minPort)
			ls, err := listenAll(r.numbers())
			held = append(held, ls...)
			if err != nil || p.validate() != nil {
				*r.port = 0
			}
		}
		if *r.port == 0 {
			return p, fmt.Errorf("no free port for %s between %d and %d", r.name, minPort, maxPort)
		}
	}
	return p, nil
}

// PortTakenError tells that a port which the stack must have is used by another
// process. Ports of a folder are not replaced by others, for programs know them.
type PortTakenError struct {
	Name string // of the stack's server
	Port int
	Err  error
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port %d, wanted for %s, is taken: %v", e.Port, e.Name, e.Err)
}

// Unwrap gives the cause.
func (e *PortTakenError) Unwrap() error { return e.Err }

// checkFree tells of the first port that is taken, of the named servers.
func (p Ports) checkFree(names ...string) error {
	for _, r := range p.all() {
		if !slices.Contains(names, r.name) {
			continue
		}
		for _, n := range r.numbers() {
			ls, err := listenAll([]int{n})
			for _, l := range ls {
				_ = l.Close()
			}
			if err != nil {
				return &PortTakenError{Name: r.name, Port: n, Err: err}
			}
		}
	}
	return nil
}

func listenAll(ports []int) ([]net.Listener, error) {
	var ls []net.Listener
	for _, port := range ports {
		l, err := net.Listen("tcp", hostPort(port))
		if err != nil {
			return ls, err
		}
		ls = append(ls, l)
	}
	return ls, nil
}

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
