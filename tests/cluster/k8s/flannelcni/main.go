// Command flannelcni stands in for flannel's CNI plugin in tests: it reads subnet.env, makes of it a
// configuration for the plugin that it delegates to (bridge with host-local), and hands over.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	subnetEnv = "/run/flannel/subnet.env"
	stateDir  = "/var/lib/cni/flannel"
)

type config struct {
	CNIVersion string         `json:"cniVersion"`
	Name       string         `json:"name"`
	SubnetFile string         `json:"subnetFile"`
	Delegate   map[string]any `json:"delegate"`
}

func fail(err error) {
	json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": "0.3.1", "code": 100, "msg": err.Error()})
	os.Exit(1)
}

// readSubnet gives the values of subnet.env by name.
func readSubnet(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to load flannel 'subnet.env' file: %w. Check the flannel pod log for this node", err)
	}
	values := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			values[name] = value
		}
	}
	return values, nil
}

// delegate builds the delegate's configuration.
func delegate(c *config) (map[string]any, error) {
	path := c.SubnetFile
	if path == "" {
		path = subnetEnv
	}
	subnet, err := readSubnet(path)
	if err != nil {
		return nil, err
	}
	mtu, err := strconv.Atoi(subnet["FLANNEL_MTU"])
	if err != nil {
		return nil, fmt.Errorf("%s: FLANNEL_MTU: %w", path, err)
	}
	d := c.Delegate
	if d == nil {
		d = map[string]any{}
	}
	d["cniVersion"], d["name"] = c.CNIVersion, c.Name
	for key, value := range map[string]any{"type": "bridge", "mtu": mtu, "isGateway": true, "ipMasq": subnet["FLANNEL_IPMASQ"] != "true"} {
		if _, given := d[key]; !given {
			d[key] = value
		}
	}
	d["ipam"] = map[string]any{
		"type":   "host-local",
		"ranges": []any{[]any{map[string]any{"subnet": masked(subnet["FLANNEL_SUBNET"])}}},
		"routes": []any{map[string]any{"dst": subnet["FLANNEL_NETWORK"]}},
	}
	return d, nil
}

// masked turns the gateway's address into the range that it is in: 10.244.1.1/24 to 10.244.1.0/24.
func masked(gateway string) string {
	address, bits, _ := strings.Cut(gateway, "/")
	parts := strings.Split(address, ".")
	parts[len(parts)-1] = "0"
	return strings.Join(parts, ".") + "/" + bits
}

// hand runs the delegate with this configuration; its answer is ours.
func hand(conf []byte) {
	var kind struct{ Type string }
	if err := json.Unmarshal(conf, &kind); err != nil {
		fail(err)
	}
	for _, folder := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		path := filepath.Join(folder, kind.Type)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		command := exec.Command(path)
		command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(conf), os.Stdout, os.Stderr
		if command.Run() != nil {
			os.Exit(1)
		}
		return
	}
	fail(fmt.Errorf("no plugin %q in %s", kind.Type, os.Getenv("CNI_PATH")))
}

func main() {
	command := os.Getenv("CNI_COMMAND")
	if command == "VERSION" {
		fmt.Println(`{"cniVersion":"1.0.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0"]}`)
		return
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	var conf config
	if err := json.Unmarshal(text, &conf); err != nil {
		fail(err)
	}
	kept := filepath.Join(stateDir, os.Getenv("CNI_CONTAINERID"))
	if command == "DEL" {
		// What ADD made, though subnet.env may have changed or gone since.
		saved, err := os.ReadFile(kept)
		if err != nil {
			return
		}
		hand(saved)
		os.Remove(kept)
		return
	}
	d, err := delegate(&conf)
	if err != nil {
		fail(err)
	}
	made, err := json.Marshal(d)
	if err != nil {
		fail(err)
	}
	if command == "ADD" {
		if err := os.MkdirAll(stateDir, 0o700); err != nil {
			fail(err)
		}
		if err := os.WriteFile(kept, made, 0o600); err != nil {
			fail(err)
		}
	}
	hand(made)
}
