package main

import (
	"encoding/json"
	"net"
	"os"
	"sort"
	"time"
)

// request is one line of the control socket.
type request struct {
	// Op is "watch" (look at the folders, which are there now), "reboot" (everything that ran is dead,
	// and nothing watches the folders), or "state".
	Op string `json:"op"`
	// Steady has the daemons that must not be without an instance from now on.
	Steady []string `json:"steady"`
	// Final has the daemons that must not come back once they are gone.
	Final []string `json:"final"`
	// Stop makes pods take so many milliseconds to end.
	Stop *int `json:"stop"`
}

type seen struct {
	UID      string `json:"uid"`
	Owner    string `json:"owner"`
	Pod      string `json:"pod"`
	Round    string `json:"round"`
	Running  bool   `json:"running"`
	Ending   bool   `json:"ending"`
	Restarts int    `json:"restarts"`
}

type reply struct {
	Pods   []seen   `json:"pods"`
	Files  []string `json:"files"`
	Bad    []string `json:"bad"`
	Events int      `json:"events"`
	Reads  int      `json:"reads"`
	Error  string   `json:"error,omitempty"`
}

func serveControl(path string, n *Node) error {
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			var asked request
			if json.NewDecoder(connection).Decode(&asked) == nil {
				json.NewEncoder(connection).Encode(n.answer(asked))
			}
		}()
	}
}

func (n *Node) answer(asked request) reply {
	n.mu.Lock()
	defer n.mu.Unlock()
	var answer reply
	if asked.Stop != nil {
		n.stopDelay = time.Duration(*asked.Stop) * time.Millisecond
	}
	if asked.Steady != nil {
		n.steady = map[string]bool{}
		for _, owner := range asked.Steady {
			n.steady[owner] = true
			if n.alive(owner) == 0 {
				n.violation("no instance of %s, which must not be interrupted", owner)
			}
		}
	}
	if asked.Final != nil {
		n.final = map[string]bool{}
		for _, owner := range asked.Final {
			n.final[owner] = true
		}
	}
	switch asked.Op {
	case "watch":
		if err := n.takeOver(); err != nil {
			answer.Error = err.Error()
		}
	case "reboot":
		for _, p := range n.pods {
			p.timer.Stop()
		}
		if n.watches != nil {
			n.watches.close()
			n.watches = nil
		}
		n.pods, n.files = map[string]*Pod{}, map[string]string{}
		n.steady, n.final = map[string]bool{}, map[string]bool{}
		// What was removed and never reached the disk may come back with it.
		n.used, n.rounds = map[string]bool{}, map[string]int{}
	}
	for _, p := range n.pods {
		answer.Pods = append(answer.Pods, seen{p.UID, p.Owner, p.Name, p.Round, p.running, p.ending, p.restarts})
	}
	sort.Slice(answer.Pods, func(i, j int) bool { return answer.Pods[i].Pod < answer.Pods[j].Pod })
	for file := range n.files {
		answer.Files = append(answer.Files, file)
	}
	sort.Strings(answer.Files)
	answer.Bad, answer.Events, answer.Reads = n.bad, n.events, n.reads
	return answer
}
