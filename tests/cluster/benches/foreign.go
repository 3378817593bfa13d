// A stand-in for an API server whose cluster has many large DaemonSets of others: it streams them by the page, over
// HTTP/2 without TLS, and knows nothing else. Prints its address, and `watched` when a list is complete and watched.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

var (
	count = flag.Int("count", 10000, "DaemonSets")
	size  = flag.Int("size", 900_000, "bytes of each")
	mutex sync.Mutex
	kept  = map[string]map[string]any{}
	turn  = 100
)

func spec() []byte {
	env := make([]string, 0, *size/40)
	for number, length := 0, 0; length < *size-400; number++ {
		env = append(env, fmt.Sprintf(`{"name":"VAR_%06d","value":"%08d"}`, number, number))
		length += len(env[number]) + 1
	}
	return []byte(`"spec":{"selector":{"matchLabels":{"app":"a"}},"template":{"metadata":{"labels":{"app":"a"}},"spec":{"containers":[{"name":"c","image":"i","env":[` +
		strings.Join(env, ",") + `]}]}}},"status":{"numberReady":1}}`)
}

func list(w http.ResponseWriter, r *http.Request, body []byte) {
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
	if err != nil {
		limit = *count
	}
	to := min(from+limit, *count)
	next := ""
	if to < *count {
		next = strconv.Itoa(to)
	}
	fmt.Fprintf(w, `{"kind":"DaemonSetList","apiVersion":"apps/v1","metadata":{"resourceVersion":"50","continue":"%s"},"items":[`, next)
	for number := from; number < to; number++ {
		if number > from {
			io.WriteString(w, ",")
		}
		fmt.Fprintf(w, `{"metadata":{"name":"foreign-%05d","namespace":"tenant-%03d","uid":"00000000-0000-0000-0000-%012d","resourceVersion":"7","generation":1,"labels":{"app":"a"}},`,
			number, number%100, number)
		if _, err := w.Write(body); err != nil {
			return
		}
	}
	io.WriteString(w, "]}")
}

// Objects that are written are kept: Leases, and what an agent makes of its own.
func object(w http.ResponseWriter, r *http.Request) {
	mutex.Lock()
	defer mutex.Unlock()
	path := r.URL.Path
	if r.Method != http.MethodGet {
		var value map[string]any
		if json.NewDecoder(r.Body).Decode(&value) != nil {
			value = map[string]any{}
		}
		metadata, _ := value["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
			value["metadata"] = metadata
		}
		turn++
		metadata["uid"], metadata["resourceVersion"] = "u", strconv.Itoa(turn)
		if name, ok := metadata["name"].(string); ok && r.Method == http.MethodPost {
			path += "/" + name
		}
		kept[path] = value
	}
	value, found := kept[path]
	if !found {
		parts := strings.Split(path, "/")
		w.WriteHeader(http.StatusNotFound)
		value = map[string]any{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "reason": "NotFound", "code": 404,
			"details": map[string]any{"name": parts[len(parts)-1], "kind": parts[len(parts)-2]}}
	}
	json.NewEncoder(w).Encode(value)
}

func main() {
	flag.Parse()
	body := spec()
	kept["/api/v1/namespaces/kube-system"] = map[string]any{"metadata": map[string]any{"name": "kube-system", "uid": "cluster"}}
	handle := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		query := r.URL.Query()
		plural := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch {
		case query.Get("watch") == "true":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			if plural == "daemonsets" {
				fmt.Println("watched")
			}
			<-r.Context().Done()
		case r.Method == http.MethodGet && plural == "daemonsets":
			list(w, r, body)
		case r.Method == http.MethodGet && (query.Has("limit") || query.Has("fieldSelector") || plural == "leases"):
			io.WriteString(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"50"},"items":[]}`)
		default:
			object(w, r)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	panic((&http.Server{Handler: http.HandlerFunc(handle), Protocols: protocols}).Serve(listener))
}
