package main

import (
	"context"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeService is the CRI over the pods that "run": one sandbox a pod, named as its UID.
type runtimeService struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	node *Node
}

func serveCRI(path string, n *Node) error {
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	service := &runtimeService{node: n}
	cri.RegisterRuntimeServiceServer(server, service)
	cri.RegisterImageServiceServer(server, service)
	return server.Serve(listener)
}

func (s *runtimeService) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "standin", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (s *runtimeService) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	conditions := []*cri.RuntimeCondition{{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true}}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: conditions}}, nil
}

func podLabels(p *Pod) map[string]string {
	return map[string]string{"io.kubernetes.pod.uid": p.UID, "io.kubernetes.pod.name": p.Name + "-" + p.Namespace, "io.kubernetes.pod.namespace": p.Namespace}
}

// podAnnotations are those of the manifest, and what the kubelet says of its source.
func podAnnotations(p *Pod) map[string]string {
	annotations := map[string]string{"kubernetes.io/config.source": "file"}
	for name, value := range p.pod.Annotations {
		if _, ok := annotations[name]; !ok {
			annotations[name] = value
		}
	}
	return annotations
}

// ListPodSandbox shows a sandbox from the moment at which the kubelet would have asked for it.
func (s *runtimeService) ListPodSandbox(_ context.Context, asked *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	response := &cri.ListPodSandboxResponse{}
	for _, p := range s.node.pods {
		if !p.running {
			continue
		}
		response.Items = append(response.Items, &cri.PodSandbox{
			Id: p.UID, Metadata: &cri.PodSandboxMetadata{Name: p.Name, Uid: p.UID, Namespace: p.Namespace},
			State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: p.created.UnixNano(), Labels: podLabels(p), Annotations: podAnnotations(p),
		})
	}
	return response, nil
}

func (s *runtimeService) ListContainers(_ context.Context, asked *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	response := &cri.ListContainersResponse{}
	for _, p := range s.node.pods {
		if !p.running {
			continue
		}
		for _, container := range p.pod.Spec.Containers {
			labels := podLabels(p)
			labels["io.kubernetes.container.name"] = container.Name
			response.Containers = append(response.Containers, &cri.Container{
				Id: p.UID + "." + container.Name, PodSandboxId: p.UID, Metadata: &cri.ContainerMetadata{Name: container.Name},
				Image: &cri.ImageSpec{Image: container.Image}, State: cri.ContainerState_CONTAINER_RUNNING,
				CreatedAt: p.created.UnixNano(), Labels: labels,
			})
		}
	}
	return response, nil
}

func (s *runtimeService) ContainerStatus(_ context.Context, asked *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	uid, name, _ := strings.Cut(asked.ContainerId, ".")
	status := &cri.ContainerStatus{Id: asked.ContainerId, Metadata: &cri.ContainerMetadata{Name: name}, State: cri.ContainerState_CONTAINER_UNKNOWN}
	if p := s.node.pods[uid]; p != nil {
		status.State, status.CreatedAt, status.StartedAt = cri.ContainerState_CONTAINER_RUNNING, p.created.UnixNano(), p.created.UnixNano()
	}
	return &cri.ContainerStatusResponse{Status: status}, nil
}

// StopPodSandbox ends the pod's containers; the kubelet starts those again whose manifest is there.
func (s *runtimeService) StopPodSandbox(_ context.Context, asked *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	if p := s.node.pods[asked.PodSandboxId]; p != nil {
		if p.ending {
			delete(s.node.pods, p.UID)
		} else {
			p.running = false
			p.restarts++
			s.node.start(p)
		}
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (s *runtimeService) RemovePodSandbox(context.Context, *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	return &cri.RemovePodSandboxResponse{}, nil
}

func (s *runtimeService) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{}, nil
}

// ImageStatus has every image whose name does not say otherwise.
func (s *runtimeService) ImageStatus(_ context.Context, asked *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	return &cri.ImageStatusResponse{Image: &cri.Image{Id: "sha256:" + asked.Image.Image, RepoTags: []string{asked.Image.Image}, Size: 1}}, nil
}

func (s *runtimeService) PullImage(_ context.Context, asked *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	time.Sleep(5 * time.Millisecond)
	return &cri.PullImageResponse{ImageRef: "sha256:" + asked.Image.Image}, nil
}
