package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

const (
	ownerAnnotation       = "daemonlet.dev/daemonset"
	incarnationAnnotation = "daemonlet.dev/incarnation"
	// surgeAnnotation on a pod allows it another instance beside it.
	surgeAnnotation = "standin/surge"
	emptyDir        = "volumes/kubernetes.io~empty-dir"
)

// Pod is what runs, or still ends, under one UID.
type Pod struct {
	UID, Owner, Name, Namespace, File, Round string
	pod                                      *v1.Pod
	running, ending                          bool
	created                                  time.Time
	restarts                                 int
	// timer starts or ends it.
	timer *time.Timer
}

// Node is the stand-in's whole state.
type Node struct {
	manifests, root, state, name string
	startDelay, stopDelay        time.Duration

	mu    sync.Mutex
	pods  map[string]*Pod
	files map[string]string
	// used has every UID whose manifest was removed.
	used map[string]bool
	// steady has the owners that must not be without an instance.
	steady map[string]bool
	// rounds has the latest round of each owner, and final those that are not to come back.
	rounds map[string]int
	final  map[string]bool
	bad    []string
	// events and reads count what was looked at.
	events, reads int
	watches       *watches
	// watching is false while files that are there already are taken over.
	watching bool
}

func (n *Node) violation(format string, args ...any) {
	n.bad = append(n.bad, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// decode reads a manifest as the kubelet's file source does.
func decode(data []byte) (*v1.Pod, error) {
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(v1.SchemeGroupVersion), data)
	if err != nil {
		return nil, err
	}
	pod := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(object, pod, nil); err != nil {
		return nil, err
	}
	if pod.UID == "" || len(pod.Spec.Containers) == 0 {
		return nil, errors.New("it has no UID or no container")
	}
	return pod, nil
}

// appeared takes the file of that name; the lock is held.
func (n *Node) appeared(file string) {
	data, err := os.ReadFile(filepath.Join(n.manifests, file))
	if errors.Is(err, os.ErrNotExist) {
		return // gone again: its removal is the next event
	}
	if err != nil {
		n.violation("%s cannot be read: %v", file, err)
		return
	}
	pod, err := decode(data)
	if err != nil {
		n.violation("%s does not decode: %v: %.80q", file, err, data)
		return
	}
	uid, owner := string(pod.UID), pod.Annotations[ownerAnnotation]
	if before := n.files[file]; before != "" && before != uid {
		n.violation("%s changed its UID from %s to %s", file, before, uid)
		n.vanished(file)
	}
	n.files[file] = uid
	if known := n.pods[uid]; known != nil && !known.ending {
		known.pod = pod
		return
	}
	if n.used[uid] {
		n.violation("UID %s of %s is used again (%s)", uid, owner, file)
	}
	if missing := n.missingData(pod); missing != "" {
		n.violation("%s is there before its data: %s", file, missing)
	}
	for _, other := range n.pods {
		if other.Owner == owner && other.UID != uid && pod.Annotations[surgeAnnotation] == "" {
			n.violation("two instances of %s: %s and %s", owner, other.Name, pod.Name)
		}
	}
	if round, err := strconv.Atoi(pod.Annotations["round"]); err == nil {
		// The order of files that were there already is not known.
		if round < n.rounds[owner] && n.watching {
			n.violation("%s goes back from round %d to %d", owner, n.rounds[owner], round)
		}
		n.rounds[owner] = max(round, n.rounds[owner])
	}
	if n.final[owner] && n.alive(owner) == 0 {
		n.violation("%s comes back", owner)
	}
	p := &Pod{UID: uid, Owner: owner, Name: pod.Name, Namespace: pod.Namespace, File: file, Round: pod.Annotations["round"], pod: pod, created: time.Now()}
	n.pods[uid] = p
	n.start(p)
}

func (n *Node) start(p *Pod) {
	p.timer = time.AfterFunc(n.startDelay, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.pods[p.UID] == p && !p.ending {
			p.running, p.created = true, time.Now()
		}
	})
}

// vanished ends the pod of the file that went; the lock is held.
func (n *Node) vanished(file string) {
	uid := n.files[file]
	delete(n.files, file)
	p := n.pods[uid]
	if p == nil {
		return
	}
	for _, other := range n.files {
		if other == uid {
			return
		}
	}
	n.used[uid] = true
	if n.state != "" {
		if why := n.unnumbered(p); why != "" {
			n.violation("%s went before its record: %s", file, why)
		}
	}
	n.end(p)
}

func (n *Node) end(p *Pod) {
	p.ending = true
	p.timer.Stop()
	if n.steady[p.Owner] && n.alive(p.Owner) == 0 {
		n.violation("no instance of %s, which must not be interrupted", p.Owner)
	}
	p.timer = time.AfterFunc(n.stopDelay, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.pods[p.UID] == p {
			delete(n.pods, p.UID)
		}
	})
}

// alive counts the instances of a daemon that are not about to end.
func (n *Node) alive(owner string) int {
	count := 0
	for _, p := range n.pods {
		if p.Owner == owner && !p.ending {
			count++
		}
	}
	return count
}

// missingData says which of a pod's volumes has no whole data.
func (n *Node) missingData(pod *v1.Pod) string {
	for _, volume := range pod.Spec.Volumes {
		if volume.EmptyDir == nil {
			continue
		}
		dir := filepath.Join(n.root, "pods", string(pod.UID), emptyDir, volume.Name)
		entries, err := os.ReadDir(filepath.Join(dir, "..data"))
		if err != nil {
			return err.Error()
		}
		for _, entry := range entries {
			data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return err.Error()
			}
			if len(data) == 0 {
				return entry.Name() + " is empty"
			}
		}
		if len(entries) == 0 {
			return volume.Name + " has no file"
		}
		if why := torn(dir); why != "" {
			return why
		}
	}
	return ""
}

// torn says whether the files of a volume are of different versions: in these tests all of them have
// one content.
func torn(volume string) string {
	version, err := os.Readlink(filepath.Join(volume, "..data"))
	if err != nil {
		return ""
	}
	dir, err := os.Open(filepath.Join(volume, version))
	if err != nil {
		return "" // switched meanwhile
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return ""
	}
	var first []byte
	for _, name := range names {
		if strings.HasPrefix(name, "ca.crt") || name == "token" || name == "namespace" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(volume, version, name))
		if err != nil {
			return "" // switched meanwhile
		}
		if first == nil {
			first = data
		} else if !bytes.Equal(first, data) {
			// A version that is being removed loses its files, it does not change them.
			return fmt.Sprintf("%s has %.40q beside %.40q", filepath.Join(volume, name), data, first)
		}
	}
	return ""
}

// readVolumes reads the data of all that runs, over and over, as the daemons do.
func (n *Node) readVolumes() {
	for {
		time.Sleep(3 * time.Millisecond)
		n.mu.Lock()
		var dirs []string
		for _, p := range n.pods {
			for _, volume := range p.pod.Spec.Volumes {
				if volume.EmptyDir != nil && !p.ending {
					dirs = append(dirs, filepath.Join(n.root, "pods", p.UID, emptyDir, volume.Name))
				}
			}
		}
		n.mu.Unlock()
		for _, dir := range dirs {
			why := torn(dir)
			n.mu.Lock()
			n.reads++
			if why != "" {
				n.violation("torn data: %s", why)
			}
			n.mu.Unlock()
		}
	}
}

type record struct {
	NextIncarnation uint64 `json:"nextIncarnation"`
	Instances       []struct {
		UID   string `json:"uid"`
		Phase struct {
			State string `json:"state"`
		} `json:"phase"`
	} `json:"instances"`
}

// unnumbered says why a removed instance's number is not taken out of use on disk.
func (n *Node) unnumbered(p *Pod) string {
	file := filepath.Join(n.state, "daemons", strings.Replace(p.Owner, "/", "_", 1)+".json")
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	var read record
	_, body, _ := bytes.Cut(data, []byte("\n"))
	if err := json.Unmarshal(body, &read); err != nil {
		return err.Error()
	}
	number, err := strconv.ParseUint(p.pod.Annotations[incarnationAnnotation], 10, 64)
	if err != nil {
		return err.Error()
	}
	if read.NextIncarnation <= number {
		return fmt.Sprintf("the next number is %d, and %d was used", read.NextIncarnation, number)
	}
	return ""
}

// checkState says what is wrong with a file of the state folder.
func checkState(path string) string {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		return err.Error()
	}
	head, body, _ := bytes.Cut(data, []byte("\n"))
	sum := sha256.Sum256(bytes.TrimSuffix(body, []byte("\n")))
	if !bytes.HasSuffix(head, []byte("sha256:"+hex.EncodeToString(sum[:]))) {
		return fmt.Sprintf("its checksum does not match (%d bytes, first line %.60q)", len(data), head)
	}
	return ""
}

// takeOver looks at folders that are there: at the start, and when they were exchanged.
func (n *Node) takeOver() error {
	if n.watches != nil {
		n.watches.close()
	}
	watches, err := watch(n)
	if err != nil {
		return err
	}
	n.watches, n.watching = watches, false
	defer func() { n.watching = true }()
	entries, err := os.ReadDir(n.manifests)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), ".") && entry.Type().IsRegular() {
			n.appeared(entry.Name())
		}
	}
	for _, dir := range []string{n.state, filepath.Join(n.state, "daemons")} {
		files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
		sort.Strings(files)
		for _, file := range files {
			if why := checkState(file); why != "" {
				n.violation("%s: %s", file, why)
			}
		}
	}
	return nil
}
