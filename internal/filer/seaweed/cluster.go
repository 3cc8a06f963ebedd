package seaweed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"github.com/seaweedfs/seaweedfs/weed/pb/master_pb"
	"google.golang.org/grpc"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Cluster is what a filer and its master say about themselves.
type Cluster struct {
	Version string // of the filer, "30GB 4.53"
	// Major and Minor are the filer's version as numbers.
	Major, Minor int
	// Replication is what the master does where nothing else is asked for.
	Replication string
	Filers      []Peer // of this filer's group, itself included, as the master lists them
}

// Peer is one filer of the cluster.
type Peer struct {
	Address string // host:port of its HTTP side
	// Store tells stores apart: filers on one store say the same number. Zero
	// when the filer could not be asked; Err has the reason.
	Store int32
	Err   error
}

// peerTimeout bounds what each other server may take to answer.
const peerTimeout = 5 * time.Second

// Cluster asks the filer, its master, and through the master's list all other
// filers. A peer that does not answer is in the list with its error. The master
// and the peers are asked at the addresses that they are known by in the
// cluster, with the same TLS settings.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	conf, err := c.configuration(ctx)
	if err != nil {
		return Cluster{}, fmt.Errorf("ask the filer: %w", err)
	}
	cl := Cluster{Version: strings.TrimSpace(conf.Version), Major: int(conf.MajorVersion), Minor: int(conf.MinorVersion)}
	var errs []error
	for _, master := range conf.Masters {
		err := c.askMaster(ctx, master, conf.FilerGroup, &cl)
		if err == nil {
			return cl, nil
		}
		errs = append(errs, fmt.Errorf("ask master %s: %w", master, err))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("the filer names no master"))
	}
	return cl, errors.Join(errs...)
}

// askMaster fills in what the master knows.
func (c *Client) askMaster(ctx context.Context, master, group string, cl *Cluster) error {
	return c.with(ctx, master, func(ctx context.Context, conn *grpc.ClientConn) error {
		rpc := master_pb.NewSeaweedClient(conn)
		conf, err := rpc.GetMasterConfiguration(ctx, &master_pb.GetMasterConfigurationRequest{})
		if err != nil {
			return err
		}
		nodes, err := rpc.ListClusterNodes(ctx, &master_pb.ListClusterNodesRequest{ClientType: "filer", FilerGroup: group})
		if err != nil {
			return err
		}
		cl.Replication, cl.Filers = cmp.Or(conf.DefaultReplication, "000"), nil
		for _, n := range nodes.ClusterNodes {
			cl.Filers = append(cl.Filers, c.askPeer(ctx, n.Address))
		}
		return nil
	})
}

func (c *Client) askPeer(ctx context.Context, address string) Peer {
	httpAddr, _ := splitAddress(address)
	p := Peer{Address: httpAddr}
	p.Err = c.with(ctx, address, func(ctx context.Context, conn *grpc.ClientConn) error {
		conf, err := filer_pb.NewSeaweedFilerClient(conn).GetFilerConfiguration(ctx, &filer_pb.GetFilerConfigurationRequest{})
		p.Store = conf.GetSignature()
		return err
	})
	return p
}

// with calls a server of the cluster by the address it is known by there.
func (c *Client) with(ctx context.Context, address string, call func(context.Context, *grpc.ClientConn) error) error {
	_, addr := splitAddress(address)
	cfg := c.cfg
	cfg.GRPC = addr
	conn, err := connect(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	return errors.Join(call(ctx, conn), conn.Close())
}

// splitAddress reads SeaweedFS's way of writing a server's address: host:port,
// with the gRPC port after a dot unless it is the HTTP port plus 10000.
func splitAddress(address string) (httpAddr, grpcAddr string) {
	host, ports, err := net.SplitHostPort(address)
	if err != nil {
		return address, address
	}
	port, grpcPort, given := strings.Cut(ports, ".")
	if !given {
		n, _ := strconv.Atoi(port) // a port that is no number fails to connect
		grpcPort = strconv.Itoa(n + grpcOffset)
	}
	return net.JoinHostPort(host, port), net.JoinHostPort(host, grpcPort)
}

// Placed asks how bytes for path would be stored now, as the storage rules and
// the filer's own settings have it: replication (empty: the master's default)
// and fsync. Nothing is stored.
func (c *Client) Placed(ctx context.Context, path string) (filer.Storage, error) {
	if err := filer.CheckPath(path); err != nil {
		return filer.Storage{}, fmt.Errorf("storage of %q: %w", path, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	to, err := c.assign(ctx, path, 1, "")
	if err != nil {
		return filer.Storage{}, fmt.Errorf("storage of %s: %w", path, err)
	}
	return filer.Storage{Replication: to.Replication, Fsync: to.Fsync}, nil
}

// Clock asks for the filer's time. It was between the times at which the call
// began and returned.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.rpc.Ping(ctx, &filer_pb.PingRequest{})
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the filer's time: %w", callError(ctx, err))
	}
	return time.Unix(0, resp.StartTimeNs), nil
}
