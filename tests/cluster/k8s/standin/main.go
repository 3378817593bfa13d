// Command standin is a node that watches daemonlet: in place of kubelet and container runtime it takes
// the manifests of a folder, "runs" their pods for as long as it is asked to, and says so by a CRI socket.
//
//	standin -manifests DIR -root DIR -state DIR -cri SOCKET -control SOCKET [-kubeconfig FILE -node NAME]
//
// It sees every change of the folders by inotify, in order, and notes what must never be: a file that
// does not decode or was not put in place by one rename, a UID that is used again, two instances
// without surge, none of a daemon that must not be interrupted, a revision that goes back, a daemon that
// comes back, a manifest before its data, a record or checkpoint that is not whole, a manifest that went before its number was on disk.
//
// The control socket takes one JSON request a connection and answers with one JSON object (control.go).
package main

import (
	"flag"
	"log"
	"time"
)

func main() {
	node := &Node{pods: map[string]*Pod{}, files: map[string]string{}, used: map[string]bool{}, steady: map[string]bool{}, final: map[string]bool{}, rounds: map[string]int{}}
	flag.StringVar(&node.manifests, "manifests", "", "the manifest folder")
	flag.StringVar(&node.root, "root", "", "the kubelet's root folder")
	flag.StringVar(&node.state, "state", "", "the agent's state folder")
	flag.DurationVar(&node.startDelay, "start", 10*time.Millisecond, "from a manifest to its running container")
	flag.DurationVar(&node.stopDelay, "stop", 30*time.Millisecond, "from a manifest's removal to the end of its sandbox")
	flag.StringVar(&node.name, "node", "", "the node's name")
	kubeconfig := flag.String("kubeconfig", "", "make mirror pods with this kubeconfig")
	cri := flag.String("cri", "", "the CRI socket to serve")
	control := flag.String("control", "", "the control socket to serve")
	flag.Parse()
	if *kubeconfig != "" {
		mirrors, err := newMirrors(*kubeconfig, node)
		if err != nil {
			log.Fatal(err)
		}
		go mirrors.run()
	}
	go node.readVolumes()
	go func() { log.Fatal(serveCRI(*cri, node)) }()
	log.Fatal(serveControl(*control, node))
}
