// Command plugin stands for what registers with a kubelet: the two containers of a CSI driver's node part, and a device
// plugin. It speaks their protocols as the real ones do, with volumes of memory and one device.
//
//	plugin registrar --csi-address=SOCKET --kubelet-registration-path=SOCKET
//	plugin driver --nodeid=NODE --endpoint=unix://SOCKET
//	plugin device
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	device "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driverName   = "nfs.csi.k8s.io"
	resourceName = "nvidia.com/gpu"
	deviceSocket = "stand-in.sock"
	patience     = 30 * time.Second
)

func main() {
	run := map[string]func([]string) error{"registrar": registrar, "driver": driver, "device": devicePlugin}
	if len(os.Args) < 2 || run[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: plugin registrar|driver|device …")
		os.Exit(2)
	}
	if err := run[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "plugin %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// serve serves at a socket until SIGTERM, and takes the socket away then.
func serve(socket string, register func(*grpc.Server), ready func() error) error {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	register(server)
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGTERM)
	go func() {
		<-ends
		server.Stop()
	}()
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	if err := ready(); err != nil {
		return err
	}
	return <-done
}

// dial connects to a socket that may not be there yet.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
}

type registrarServer struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (s *registrarServer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: s.name, Endpoint: s.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (s *registrarServer) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Printf("registered: %v %s\n", status.PluginRegistered, status.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func registrar(args []string) error {
	flags := flag.NewFlagSet("registrar", flag.ContinueOnError)
	address := flags.String("csi-address", "", "the driver's socket")
	path := flags.String("kubelet-registration-path", "", "the driver's socket, where the kubelet sees it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	connection, err := dial(*address)
	if err != nil {
		return err
	}
	defer connection.Close()
	wait, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(wait, &csi.GetPluginInfoRequest{})
	if err != nil {
		return err
	}
	server := &registrarServer{name: info.Name, endpoint: *path}
	return serve(filepath.Join("/registration", info.Name+"-reg.sock"), func(s *grpc.Server) {
		registration.RegisterRegistrationServer(s, server)
	}, func() error { return nil })
}

type driverServer struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	node string
}

func (s *driverServer) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driverName, VendorVersion: "1"}, nil
}

func (s *driverServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: s.node}, nil
}

func (s *driverServer) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (s *driverServer) NodePublishVolume(_ context.Context, asked *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := os.MkdirAll(asked.TargetPath, 0o750); err != nil {
		return nil, err
	}
	if err := syscall.Mount("stand-in", asked.TargetPath, "tmpfs", 0, "size=1m"); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (s *driverServer) NodeUnpublishVolume(_ context.Context, asked *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := syscall.Unmount(asked.TargetPath, 0); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, os.RemoveAll(asked.TargetPath)
}

func driver(args []string) error {
	flags := flag.NewFlagSet("driver", flag.ContinueOnError)
	node := flags.String("nodeid", "", "the node's name")
	endpoint := flags.String("endpoint", "", "where it serves")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server := &driverServer{node: *node}
	return serve(strings.TrimPrefix(*endpoint, "unix://"), func(s *grpc.Server) {
		csi.RegisterIdentityServer(s, server)
		csi.RegisterNodeServer(s, server)
	}, func() error { return nil })
}

type deviceServer struct {
	device.UnimplementedDevicePluginServer
}

func (deviceServer) GetDevicePluginOptions(context.Context, *device.Empty) (*device.DevicePluginOptions, error) {
	return &device.DevicePluginOptions{}, nil
}

func (deviceServer) ListAndWatch(_ *device.Empty, stream grpc.ServerStreamingServer[device.ListAndWatchResponse]) error {
	devices := []*device.Device{{ID: "one", Health: device.Healthy}}
	if err := stream.Send(&device.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (deviceServer) Allocate(_ context.Context, asked *device.AllocateRequest) (*device.AllocateResponse, error) {
	answer := &device.AllocateResponse{}
	for range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &device.ContainerAllocateResponse{})
	}
	return answer, nil
}

func devicePlugin([]string) error {
	register := func() error {
		connection, err := dial(device.KubeletSocket)
		if err != nil {
			return err
		}
		defer connection.Close()
		wait, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err = device.NewRegistrationClient(connection).Register(wait, &device.RegisterRequest{
			Version: device.Version, Endpoint: deviceSocket, ResourceName: resourceName,
		})
		return err
	}
	return serve(filepath.Join(device.DevicePluginPath, deviceSocket), func(s *grpc.Server) {
		device.RegisterDevicePluginServer(s, deviceServer{})
	}, register)
}
