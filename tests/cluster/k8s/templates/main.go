// Command templates judges DaemonSets as an API server does that is asked to create them.
//
//	templates [-version 1.35]
//
// Each line of stdin is a DaemonSet. For each it prints one line: {"errors": […]} with what creation
// says of it after defaulting; for one that is taken {"pod": …}, a pod of its template in which
// emptyDirs and plain values stand for the objects that it refers to, so that a kubelet's file source
// can be asked about the rest.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
)

func main() {
	emulated := flag.String("version", "", "judge as this version does by default")
	flag.Parse()
	if err := run(*emulated); err != nil {
		fmt.Fprintf(os.Stderr, "templates: %v\n", err)
		os.Exit(1)
	}
}

// verdict is what is said of one DaemonSet.
type verdict struct {
	Errors []string `json:"errors"`
	Pod    *v1.Pod  `json:"pod,omitempty"`
}

func run(emulated string) error {
	if emulated != "" {
		if err := utilfeature.DefaultMutableFeatureGate.SetEmulationVersion(version.MustParse(emulated)); err != nil {
			return err
		}
	}
	// As with --allow-privileged.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 16<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for in.Scan() {
		if err := encoder.Encode(judge(in.Bytes())); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return err
	}
	return out.Flush()
}

func judge(line []byte) verdict {
	object, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), line)
	if err != nil {
		return verdict{Errors: []string{"decode: " + err.Error()}}
	}
	daemonSet, ok := object.(*apps.DaemonSet)
	if !ok {
		return verdict{Errors: []string{"decode: no DaemonSet"}}
	}
	if daemonSet.Namespace == "" {
		daemonSet.Namespace = metav1.NamespaceDefault
	}
	ctx := context.Background()
	daemonset.Strategy.PrepareForCreate(ctx, daemonSet)
	said := verdict{Errors: []string{}}
	for _, err := range daemonset.Strategy.Validate(ctx, daemonSet) {
		said.Errors = append(said.Errors, err.Error())
	}
	if len(said.Errors) > 0 {
		return said
	}
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: daemonSet.Name, Namespace: daemonSet.Namespace},
	}
	pod.Labels, pod.Annotations = daemonSet.Spec.Template.Labels, daemonSet.Spec.Template.Annotations
	if err := corev1.Convert_core_PodSpec_To_v1_PodSpec(&daemonSet.Spec.Template.Spec, &pod.Spec, nil); err != nil {
		return verdict{Errors: []string{"convert: " + err.Error()}}
	}
	standIn(&pod.Spec)
	said.Pod = pod
	return said
}

// standIn takes out what refers to objects, and what only the scheduler reads.
func standIn(spec *v1.PodSpec) {
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	spec.ImagePullSecrets, spec.SchedulingGates = nil, nil
	for i := range spec.Volumes {
		source := &spec.Volumes[i].VolumeSource
		if source.ConfigMap != nil || source.Secret != nil || source.Projected != nil {
			*source = v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}
		}
	}
	for _, containers := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].EnvFrom = nil
			for j := range containers[i].Env {
				variable := &containers[i].Env[j]
				if from := variable.ValueFrom; from != nil && (from.ConfigMapKeyRef != nil || from.SecretKeyRef != nil) {
					variable.ValueFrom = nil
				}
			}
		}
	}
}
