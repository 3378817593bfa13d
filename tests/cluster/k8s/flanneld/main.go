// Command flanneld stands in for flannel's daemon in tests, doing honestly what that does with its
// surroundings: it reads net-conf.json, asks the API server for its own Pod and Node with its
// service account (and exits without an answer), takes the Node's pod range, writes subnet.env,
// keeps routes to the other nodes, and answers its probes. It differs in one thing: routes go over
// the nodes' common network, whatever back end net-conf.json names.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	account   = "/var/run/secrets/kubernetes.io/serviceaccount"
	netConf   = "/etc/kube-flannel/net-conf.json"
	subnetEnv = "/run/flannel/subnet.env"
)

// node is as much of a Node as is needed.
type node struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		PodCIDR string `json:"podCIDR"`
	} `json:"spec"`
	Status struct {
		Addresses []struct{ Type, Address string } `json:"addresses"`
	} `json:"status"`
}

func (n *node) internalIP() net.IP {
	for _, address := range n.Status.Addresses {
		if address.Type == "InternalIP" {
			return net.ParseIP(address.Address)
		}
	}
	return nil
}

// api speaks to the API server as a pod does: address from the environment, token and CA from the volume.
type api struct {
	base   string
	client *http.Client
}

func newAPI() (*api, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, fmt.Errorf("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be set")
	}
	pem, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in ca.crt")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	return &api{base: "https://" + net.JoinHostPort(host, port), client: &http.Client{Transport: transport}}, nil
}

func (a *api) open(ctx context.Context, path string) (io.ReadCloser, error) {
	token, err := os.ReadFile(filepath.Join(account, "token"))
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	answer, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return nil, fmt.Errorf("GET %s: %s: %s", path, answer.Status, text)
	}
	return answer.Body, nil
}

func (a *api) get(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	body, err := a.open(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(into)
}

// follow lists the nodes and then watches them until the watch ends.
func (a *api) follow(each func(gone bool, n *node)) error {
	var all struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []node `json:"items"`
	}
	if err := a.get("/api/v1/nodes", &all); err != nil {
		return err
	}
	for i := range all.Items {
		each(false, &all.Items[i])
	}
	body, err := a.open(context.Background(), "/api/v1/nodes?watch=1&resourceVersion="+all.Metadata.ResourceVersion)
	if err != nil {
		return err
	}
	defer body.Close()
	for decoder := json.NewDecoder(body); ; {
		var event struct {
			Type   string `json:"type"`
			Object node   `json:"object"`
		}
		if err := decoder.Decode(&event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return fmt.Errorf("the watch ended")
		}
		each(event.Type == "DELETED", &event.Object)
	}
}

// route makes or removes the route to a node's pods.
func route(gone bool, n *node) error {
	_, pods, err := net.ParseCIDR(n.Spec.PodCIDR)
	if err != nil {
		return nil // no range yet: another event brings it
	}
	via := n.internalIP()
	if via == nil {
		return nil
	}
	r := &netlink.Route{Dst: pods, Gw: via}
	if gone {
		return netlink.RouteDel(r)
	}
	return netlink.RouteReplace(r)
}

// writeSubnet writes subnet.env by rename, as flannel does.
func writeSubnet(network string, pods *net.IPNet, mtu int, masquerade bool) error {
	gateway := pods.IP.To4()
	gateway[3]++
	ones, _ := pods.Mask.Size()
	text := fmt.Sprintf("FLANNEL_NETWORK=%s\nFLANNEL_SUBNET=%s/%d\nFLANNEL_MTU=%d\nFLANNEL_IPMASQ=%v\n", network, gateway, ones, mtu, masquerade)
	if err := os.MkdirAll(filepath.Dir(subnetEnv), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(subnetEnv+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(subnetEnv+".new", subnetEnv)
}

func serve(port int, ready *atomic.Bool) {
	http.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "flanneld is running") })
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "flanneld is not ready", http.StatusServiceUnavailable)
		}
	})
	log.Fatal(http.ListenAndServe(fmt.Sprintf("0.0.0.0:%d", port), nil))
}

func main() {
	masquerade := flag.Bool("ip-masq", false, "")
	subnetManager := flag.Bool("kube-subnet-mgr", false, "")
	port := flag.Int("healthz-port", 0, "")
	flag.Parse()
	if !*subnetManager {
		log.Fatal("only --kube-subnet-mgr is supported")
	}
	var conf struct{ Network string }
	text, err := os.ReadFile(netConf)
	if err == nil {
		err = json.Unmarshal(text, &conf)
	}
	if err != nil || conf.Network == "" {
		log.Fatalf("%s: no network: %v", netConf, err)
	}
	server, err := newAPI()
	if err != nil {
		log.Fatalf("failed to create the subnet manager: %v", err)
	}
	var pod struct {
		Spec struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
	}
	if err := server.get("/api/v1/namespaces/"+os.Getenv("POD_NAMESPACE")+"/pods/"+os.Getenv("POD_NAME"), &pod); err != nil {
		log.Fatalf("error retrieving pod spec: %v", err)
	}
	var own node
	if err := server.get("/api/v1/nodes/"+pod.Spec.NodeName, &own); err != nil {
		log.Fatalf("error retrieving node: %v", err)
	}
	_, pods, err := net.ParseCIDR(own.Spec.PodCIDR)
	if err != nil {
		log.Fatalf("node %q pod cidr not assigned", pod.Spec.NodeName)
	}
	var ready atomic.Bool
	if *port > 0 {
		go serve(*port, &ready)
	}
	if err := writeSubnet(conf.Network, pods, 1500, *masquerade); err != nil {
		log.Fatalf("subnet.env: %v", err)
	}
	ready.Store(true)
	log.Printf("node %s, pods %s: wrote %s", own.Metadata.Name, pods, subnetEnv)
	go func() {
		for {
			err := server.follow(func(gone bool, n *node) {
				if n.Metadata.Name == own.Metadata.Name {
					return
				}
				if err := route(gone, n); err != nil {
					log.Printf("route to %s: %v", n.Metadata.Name, err)
				}
			})
			log.Printf("nodes: %v", err)
			time.Sleep(time.Second)
		}
	}()
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	<-end
}
