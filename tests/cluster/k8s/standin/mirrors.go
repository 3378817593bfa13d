package main

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// mirrors keeps a mirror pod, Ready, for each pod that runs, as the kubelet does.
type mirrors struct {
	client kubernetes.Interface
	node   *Node
	// begun has the mirror pods by name, those that may have been made in part, too: others change them, and then a status is refused.
	begun map[string]*mirror
}

type mirror struct {
	namespace, uid string
	isDone         bool
}

func newMirrors(kubeconfig string, n *Node) (*mirrors, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst, config.Timeout = 200, 200, 5*time.Second
	client, err := kubernetes.NewForConfig(config)
	return &mirrors{client: client, node: n, begun: map[string]*mirror{}}, err
}

func (m *mirrors) run() {
	for ; ; time.Sleep(10 * time.Millisecond) {
		m.node.mu.Lock()
		wanted, known := map[string]*Pod{}, map[string]bool{}
		for _, p := range m.node.pods {
			known[p.UID] = true
			if p.running {
				wanted[p.Name+"-"+m.node.name] = p
			}
		}
		isOff := m.node.watches == nil
		m.node.mu.Unlock()
		for name, begun := range m.begun {
			// Who has lost power removes nothing, and a pod that starts again keeps its mirror pod.
			if !isOff && !known[begun.uid] {
				if m.remove(name, begun.namespace) == nil {
					delete(m.begun, name)
				}
			}
		}
		for name, p := range wanted {
			if m.begun[name] == nil {
				m.begun[name] = &mirror{namespace: p.Namespace, uid: p.UID}
			}
			if begun := m.begun[name]; begun.uid == p.UID && !begun.isDone {
				begun.isDone = m.make(name, p) == nil
			}
		}
	}
}

func (m *mirrors) remove(name, namespace string) error {
	now := int64(0)
	err := m.client.CoreV1().Pods(namespace).Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (m *mirrors) make(name string, p *Pod) error {
	owner, err := m.client.CoreV1().Nodes().Get(context.Background(), m.node.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	controller := true
	annotations := map[string]string{"kubernetes.io/config.mirror": p.UID, "kubernetes.io/config.hash": p.UID, "kubernetes.io/config.source": "file"}
	maps.Copy(annotations, p.pod.Annotations)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: p.Namespace, Labels: p.pod.Labels,
		Annotations:     annotations,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.node.name, UID: types.UID(owner.UID), Controller: &controller}},
	}}
	pod.Spec.NodeName = m.node.name
	pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	var statuses []v1.ContainerStatus
	began := metav1.Now()
	for _, container := range p.pod.Spec.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: container.Name, Image: container.Image})
		statuses = append(statuses, v1.ContainerStatus{Name: container.Name, Image: container.Image, Ready: true,
			ContainerID: "standin://" + p.UID, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: began}}})
	}
	pods := m.client.CoreV1().Pods(p.Namespace)
	made, err := pods.Create(context.Background(), pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if made, err = pods.Get(context.Background(), name, metav1.GetOptions{}); err == nil && made.Annotations["kubernetes.io/config.mirror"] != p.UID {
			m.remove(name, p.Namespace)
			return apierrors.NewConflict(v1.Resource("pods"), name, nil)
		}
	}
	if err != nil {
		return err
	}
	made.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: &began, ContainerStatuses: statuses, Conditions: []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: began},
		{Type: v1.ContainersReady, Status: v1.ConditionTrue, LastTransitionTime: began}}}
	_, err = pods.UpdateStatus(context.Background(), made, metav1.UpdateOptions{})
	return err
}
