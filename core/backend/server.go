package backend

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// protocolVersion is the version of the wire contract that this source speaks. A method or a field that is added leaves it: a plugin of before answers what it
// does not know with Unimplemented, which is Unsupported to the caller, and a host of before never asks for it.
const protocolVersion = 1

// pluginName is the name that the backend has inside go-plugin.
const pluginName = "backend"

// handshake tells a plugin that a Kale host started it. The cookie guards against mistakes, not against enemies:
// that is what AutoMTLS does.
var handshake = plugin.HandshakeConfig{
	MagicCookieKey:   "KALE_BACKEND_PLUGIN",
	MagicCookieValue: "5f0a8c2e-kale-backend",
}

// envParentPipe names the variable with the number of the descriptor whose other end the host holds open.
const envParentPipe = "KALE_BACKEND_PARENT_FD"

// Serve makes this process a backend plugin, and returns when the host asks for that or is gone. It calls newBackend
// once, with a logger whose lines the host takes up in its own log, and closes what it made. A plugin's main calls
// Serve and does little else; standard output belongs to the plugin protocol until Serve returns.
func Serve(newBackend func(lg *slog.Logger) Backend) {
	hl, lg := pluginLogger(os.Stderr) // before plugin.Serve, which replaces os.Stderr
	parent := watchParent()
	b := newBackend(lg)
	served := make(chan struct{})
	// Owned by Serve, ends with the process or when the host asks; touches only b, through gRPC.
	go func() {
		defer close(served)
		plugin.Serve(&plugin.ServeConfig{
			HandshakeConfig:  handshake,
			VersionedPlugins: pluginVersions(b),
			GRPCServer:       plugin.DefaultGRPCServer,
			Logger:           hl,
		})
	}()
	select {
	case <-served:
	case <-parent:
		// The host will never clean up what go-plugin left for it.
		if dir := os.Getenv(plugin.EnvUnixSocketDir); dir != "" {
			if err := os.RemoveAll(dir); err != nil {
				lg.Warn("cannot remove the socket folder", "dir", dir, "err", err)
			}
		}
	}
	if err := b.Close(); err != nil {
		lg.Warn("cannot close the backend", "err", err)
	}
}

func pluginVersions(b Backend) map[int]plugin.PluginSet {
	return map[int]plugin.PluginSet{protocolVersion: {pluginName: &grpcPlugin{backend: b}}}
}

// watchParent gives a channel that is closed when the process that started this one is gone: when the pipe that it
// holds open (Launch makes one) ends, or, for any other host, when this process gets another parent.
func watchParent() <-chan struct{} {
	gone := make(chan struct{})
	done := make(chan struct{}, 2)
	if fd, err := strconv.Atoi(os.Getenv(envParentPipe)); err == nil && fd > 2 {
		pipe := os.NewFile(uintptr(fd), "parent")
		setCloseOnExec(pipe)
		// Ends with the process or its parent.
		go func() {
			_, _ = io.Copy(io.Discard, pipe) // nothing is ever written; any end is the parent's
			done <- struct{}{}
		}()
	}
	parent := os.Getppid()
	// Ends with the process or its parent.
	go func() {
		for os.Getppid() == parent {
			time.Sleep(time.Second)
		}
		done <- struct{}{}
	}()
	go func() {
		<-done
		close(gone)
	}()
	return gone
}

// grpcPlugin registers the service on the plugin's side and makes its stub on the host's.
type grpcPlugin struct {
	plugin.NetRPCUnsupportedPlugin
	backend Backend // nil on the host's side
}

func (p *grpcPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	backendpb.RegisterBackendServiceServer(s, &server{backend: p.backend})
	return nil
}

func (p *grpcPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return backendpb.NewBackendServiceClient(conn), nil
}

// server is the plugin's side of the wire.
type server struct {
	backendpb.UnimplementedBackendServiceServer
	backend Backend
}

func (s *server) Info(ctx context.Context, _ *backendpb.InfoRequest) (*backendpb.InfoResponse, error) {
	info, err := s.backend.Info(ctx)
	if err != nil {
		return nil, toWire(err)
	}
	return &backendpb.InfoResponse{
		Name: info.Name, Version: info.Version, Drains: info.Drains, Gpus: info.GPUs, Survives: info.Survives, Queues: info.Queues, Beside: info.Beside,
	}, nil
}

func (s *server) Configure(ctx context.Context, req *backendpb.ConfigureRequest) (*backendpb.ConfigureResponse, error) {
	diags, err := s.backend.Configure(ctx, configFromPB(req))
	if err != nil {
		return nil, toWire(err)
	}
	return &backendpb.ConfigureResponse{Diagnostics: each(diags, diagnosticToPB)}, nil
}

func (s *server) Plan(ctx context.Context, req *backendpb.PlanRequest) (*backendpb.PlanResponse, error) {
	report, err := s.backend.Plan(ctx, req.GetJob(), each(req.GetWorkloads(), workloadFromPB))
	if err != nil {
		return nil, toWire(err)
	}
	return reportToPB(report), nil
}

func (s *server) Ensure(ctx context.Context, req *backendpb.EnsureRequest) (*backendpb.EnsureResponse, error) {
	statuses, err := s.backend.Ensure(ctx, req.GetJob(), each(req.GetWorkloads(), workloadFromPB))
	if err != nil {
		return nil, toWire(err)
	}
	return &backendpb.EnsureResponse{Statuses: each(statuses, statusToPB)}, nil
}

func (s *server) List(ctx context.Context, req *backendpb.ListRequest) (*backendpb.ListResponse, error) {
	statuses, complete, err := s.backend.List(ctx, req.GetJob())
	if err != nil {
		return nil, toWire(err)
	}
	return &backendpb.ListResponse{Statuses: each(statuses, statusToPB), Complete: complete}, nil
}

func (s *server) Release(ctx context.Context, req *backendpb.ReleaseRequest) (*backendpb.ReleaseResponse, error) {
	err := s.backend.Release(ctx, req.GetJob(), each(req.GetIds(), idFromPB), howFromPB(req.GetHow()))
	if err != nil {
		return nil, toWire(err)
	}
	return &backendpb.ReleaseResponse{}, nil
}

func (s *server) Logs(req *backendpb.LogsRequest, stream grpc.ServerStreamingServer[backendpb.LogsResponse]) error {
	logs, err := s.backend.Logs(stream.Context(), req.GetJob(), idFromPB(req.GetId()),
		LogOptions{Tail: int(req.GetTail()), Follow: req.GetFollow()})
	if err != nil {
		return toWire(err)
	}
	defer logs.Close()
	if err := stream.Send(&backendpb.LogsResponse{}); err != nil { // says that the log is open
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := logs.Read(buf)
		if n > 0 {
			if serr := stream.Send(&backendpb.LogsResponse{Data: buf[:n]}); serr != nil {
				return serr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return toWire(err)
		}
	}
}

func (s *server) Inventory(ctx context.Context, _ *backendpb.InventoryRequest) (*backendpb.InventoryResponse, error) {
	inv, err := s.backend.Inventory(ctx)
	if err != nil {
		return nil, toWire(err)
	}
	return inventoryToPB(inv), nil
}

func (s *server) Watch(req *backendpb.WatchRequest, stream grpc.ServerStreamingServer[backendpb.WatchResponse]) error {
	events, err := s.backend.Watch(stream.Context(), req.GetJob())
	if err != nil {
		return toWire(err)
	}
	if err := stream.Send(&backendpb.WatchResponse{}); err != nil { // says that the watch is on
		return err
	}
	for e := range events {
		if err := stream.Send(&backendpb.WatchResponse{Id: idToPB(e.ID), State: stateToPB(e.State)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) Forget(ctx context.Context, req *backendpb.ForgetRequest) (*backendpb.ForgetResponse, error) {
	removed, err := s.backend.Forget(ctx, req.GetJob(), req.GetRole())
	if err != nil {
		return nil, toWire(err)
	}
	return &backendpb.ForgetResponse{Removed: removed}, nil
}

// CleanEnviron gives this process's environment without what the plugin protocol put there: what a backend that
// starts processes of its own passes on.
func CleanEnviron() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if name != handshake.MagicCookieKey && name != envParentPipe && !strings.HasPrefix(name, "PLUGIN_") {
			env = append(env, kv)
		}
	}
	return env
}
