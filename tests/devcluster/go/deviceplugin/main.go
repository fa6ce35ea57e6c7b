// Command gpu-plugin is a kubelet device plugin that advertises accelerators which are not there.
//
// It speaks the same protocol as NVIDIA's: it registers with the kubelet, again whenever the kubelet was restarted,
// streams the list of devices, and gives a container the indexes it was allotted in NVIDIA_VISIBLE_DEVICES. Devices
// named in the file of -unhealthy (indexes, one a line) are reported unhealthy as soon as the file changes.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socketName = "devcluster-gpu.sock"

// pollInterval bounds how long a restarted kubelet or a changed health file goes unnoticed.
const pollInterval = 100 * time.Millisecond

type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	count     int
	unhealthy string
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch sends the devices at once, and again whenever the health file has changed.
func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	var sent []byte
	for first := true; ; first = false {
		unhealthy, _ := os.ReadFile(p.unhealthy)
		if first || !bytes.Equal(unhealthy, sent) {
			if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices(string(unhealthy))}); err != nil {
				return err
			}
			sent = unhealthy
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

func (p *plugin) devices(unhealthy string) []*v1beta1.Device {
	bad := map[string]bool{}
	for _, index := range strings.Fields(unhealthy) {
		bad[index] = true
	}
	devices := make([]*v1beta1.Device, 0, p.count)
	for index := range p.count {
		id := fmt.Sprint(index)
		health := v1beta1.Healthy
		if bad[id] {
			health = v1beta1.Unhealthy
		}
		devices = append(devices, &v1beta1.Device{ID: id, Health: health})
	}
	return devices
}

func (p *plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")},
		})
	}
	return response, nil
}

func register(folder, resource string) error {
	target := "unix://" + filepath.Join(folder, "kubelet.sock")
	connection, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(connection).Register(ctx, &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     socketName,
		ResourceName: resource,
	})
	return err
}

// kubeletBirth tells one kubelet's socket from that of the kubelet before it.
func kubeletBirth(folder string) (time.Time, bool) {
	info, err := os.Stat(filepath.Join(folder, "kubelet.sock"))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}

// serve opens the plugin's own socket; a starting kubelet removes all sockets in its folder, so each gets a new one.
func serve(folder string, p *plugin) (*grpc.Server, error) {
	path := filepath.Join(folder, socketName)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, p)
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Fatalf("serving %s: %v", path, err)
		}
	}()
	return server, nil
}

func main() {
	folder := flag.String("folder", "", "the kubelet's device-plugins folder")
	resource := flag.String("resource", "nvidia.com/gpu", "name of the advertised resource")
	count := flag.Int("count", 0, "number of devices")
	unhealthy := flag.String("unhealthy", "", "file that lists unhealthy devices")
	flag.Parse()

	p := &plugin{count: *count, unhealthy: *unhealthy}
	var server *grpc.Server
	var registered time.Time
	for ; ; time.Sleep(pollInterval) {
		birth, there := kubeletBirth(*folder)
		if !there || birth.Equal(registered) {
			continue
		}
		if server != nil {
			server.Stop()
		}
		var err error
		if server, err = serve(*folder, p); err != nil {
			log.Printf("opening the socket: %v", err)
			continue
		}
		if err := register(*folder, *resource); err != nil {
			log.Printf("registering: %v", err)
			continue
		}
		registered = birth
		log.Printf("registered %d x %s", *count, *resource)
	}
}
