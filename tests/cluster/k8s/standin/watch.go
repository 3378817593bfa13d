package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// watches is one inotify instance over the manifest folder and the state folders.
type watches struct {
	file *os.File
	dirs map[int32]string
}

const masks = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE

func watch(n *Node) (*watches, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &watches{file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]string{}}
	dirs := []string{n.manifests}
	if n.state != "" {
		daemons := filepath.Join(n.state, "daemons")
		for _, dir := range []string{n.state, daemons} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		wd, err := unix.InotifyAddWatch(fd, dir, masks)
		if err != nil {
			return nil, err
		}
		w.dirs[int32(wd)] = dir
	}
	go w.follow(n)
	return w, nil
}

func (w *watches) close() { w.file.Close() }

func (w *watches) follow(n *Node) {
	buffer := make([]byte, 1<<16)
	for {
		length, err := w.file.Read(buffer)
		if err != nil {
			return
		}
		n.mu.Lock()
		for at := 0; n.watches == w && at+unix.SizeofInotifyEvent <= length; {
			wd := int32(binary.NativeEndian.Uint32(buffer[at:]))
			mask := binary.NativeEndian.Uint32(buffer[at+4:])
			size := int(binary.NativeEndian.Uint32(buffer[at+12:]))
			name := strings.TrimRight(string(buffer[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+size]), "\x00")
			at += unix.SizeofInotifyEvent + size
			if mask&unix.IN_Q_OVERFLOW != 0 {
				n.violation("events were lost")
				continue
			}
			n.happened(w.dirs[wd], name, mask)
		}
		n.mu.Unlock()
	}
}

// happened takes one event of a watched folder; the lock is held.
func (n *Node) happened(dir, name string, mask uint32) {
	n.events++
	path := filepath.Join(dir, name)
	if dir != n.manifests {
		if !strings.HasSuffix(name, ".json") {
			return
		}
		if mask&(unix.IN_CREATE|unix.IN_MODIFY) != 0 {
			n.violation("%s was written in place", path)
		} else if why := checkState(path); why != "" {
			n.violation("%s: %s", path, why)
		}
		return
	}
	if strings.HasPrefix(name, ".") {
		return
	}
	switch {
	case mask&(unix.IN_CREATE|unix.IN_MODIFY) != 0:
		n.violation("%s was written in place", path)
	case mask&unix.IN_MOVED_TO != 0:
		n.appeared(name)
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		n.vanished(name)
	}
}
