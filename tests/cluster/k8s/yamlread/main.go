// Command yamlread reads YAML the way the kubelet reads a manifest, many documents in one run.
//
// Each line of stdin is a document as a JSON string; each line of stdout is {"value": …} or
// {"error": "…"} for it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/util/yaml"
)

type answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "yamlread: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for in.More() {
		var text string
		if err := in.Decode(&text); err != nil {
			return err
		}
		if err := encoder.Encode(read(text)); err != nil {
			return err
		}
	}
	return out.Flush()
}

// read takes the step that pkg/kubelet/config takes before it decodes a pod.
func read(text string) answer {
	value, err := yaml.ToJSON([]byte(text))
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Value: value}
}
