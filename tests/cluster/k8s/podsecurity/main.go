// Command podsecurity judges pods as the API server's admission does.
//
// Each line of stdin is a pod. For each it prints one line: {"verdicts": {"LEVEL:VERSION": "…", …}},
// with what that level says of it; levels that allow it say "". Versions go from v1.0 to v1.40.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "podsecurity: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	versions := []api.Version{api.LatestVersion()}
	for minor := 0; minor <= 40; minor++ {
		versions = append(versions, api.MajorMinorVersion(1, minor))
	}
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for in.More() {
		var pod corev1.Pod
		if err := in.Decode(&pod); err != nil {
			return err
		}
		// As admission finds it: the API has filled in what is left out.
		defaults.SetObjectDefaults_Pod(&pod)
		verdicts := map[string]string{}
		for _, level := range []api.Level{api.LevelPrivileged, api.LevelBaseline, api.LevelRestricted} {
			for _, version := range versions {
				asked := api.LevelVersion{Level: level, Version: version}
				results := policy.AggregateCheckResults(evaluator.EvaluatePod(asked, &pod.ObjectMeta, &pod.Spec))
				verdicts[asked.String()] = results.ForbiddenDetail()
			}
		}
		if err := encoder.Encode(map[string]any{"verdicts": verdicts}); err != nil {
			return err
		}
	}
	return out.Flush()
}
