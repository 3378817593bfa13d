// Command liar stands between an agent and the API server and changes what that says of DaemonSets as it is asked to.
//
//	liar LISTEN SERVER CA CERT KEY CLIENT-CERT CLIENT-KEY LIES
//
// It serves TLS with CERT and KEY and asks SERVER with the client certificate. LIES is a folder; while it holds a file
// "empty-lists", lists of DaemonSets are empty; with "skip-deletes", watches of them lack the event DELETED.
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "liar: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 8 {
		return fmt.Errorf("usage: liar LISTEN SERVER CA CERT KEY CLIENT-CERT CLIENT-KEY LIES")
	}
	server, err := url.Parse(args[1])
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client, err := tls.LoadX509KeyPair(args[5], args[6])
	if err != nil {
		return err
	}
	lies := func(lie string) bool {
		_, err := os.Stat(filepath.Join(args[7], lie))
		return err == nil
	}
	proxy := httputil.NewSingleHostReverseProxy(server)
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{client}},
		ForceAttemptHTTP2: true,
	}
	proxy.ModifyResponse = func(response *http.Response) error {
		request := response.Request
		if request.Method != http.MethodGet || response.StatusCode != http.StatusOK || request.URL.Path != "/apis/apps/v1/daemonsets" {
			return nil
		}
		if request.URL.Query().Get("watch") == "true" {
			response.Body = withoutDeletes(response.Body, lies)
			return nil
		}
		if lies("empty-lists") {
			return empty(response)
		}
		return nil
	}
	handler := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		request.Header.Del("Accept-Encoding")
		proxy.ServeHTTP(writer, request)
	})
	return (&http.Server{Addr: args[0], Handler: handler}).ListenAndServeTLS(args[3], args[4])
}

func empty(response *http.Response) error {
	var list map[string]any
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return err
	}
	list["items"] = []any{}
	if metadata, ok := list["metadata"].(map[string]any); ok {
		delete(metadata, "continue")
		delete(metadata, "remainingItemCount")
	}
	body, err := json.Marshal(list)
	if err != nil {
		return err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	response.ContentLength = int64(len(body))
	response.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// withoutDeletes passes a watch on, event by event.
func withoutDeletes(events io.ReadCloser, lies func(string) bool) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		defer events.Close()
		lines := bufio.NewReader(events)
		for {
			line, err := lines.ReadString('\n')
			if !(strings.HasPrefix(line, `{"type":"DELETED"`) && lies("skip-deletes")) {
				if _, err := io.WriteString(writer, line); err != nil {
					return
				}
			}
			if err != nil {
				writer.CloseWithError(err)
				return
			}
		}
	}()
	return reader
}
