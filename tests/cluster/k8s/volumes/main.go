// Command volumes sets up a pod's volumes with the kubelet's own volume plugins, without a kubelet.
//
//	volumes FILE DIR
//
// FILE holds one Pod and the ConfigMaps and Secrets that it refers to, as YAML documents. Every
// configMap, secret, projected and downwardAPI volume is written below DIR; stdout is a JSON object
// from the volume's name to its folder. A ServiceAccount's token reads
// "token NAMESPACE/NAME AUDIENCE SECONDS". Only the mounting of tmpfs is faked.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	volumetesting "k8s.io/kubernetes/pkg/volume/testing"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: volumes FILE DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "volumes: %v\n", err)
		os.Exit(1)
	}
}

func run(file, dir string) error {
	pod, objects, err := read(file)
	if err != nil {
		return err
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("create", "serviceaccounts", token)
	plugins := []volume.VolumePlugin{}
	for _, probe := range []func() []volume.VolumePlugin{
		emptydir.ProbeVolumePlugins, configmap.ProbeVolumePlugins, secret.ProbeVolumePlugins,
		projected.ProbeVolumePlugins, downwardapi.ProbeVolumePlugins,
	} {
		plugins = append(plugins, probe()...)
	}
	manager := volumetesting.NewFakeKubeletVolumeHost(nil, dir, client, plugins).GetPluginMgr()
	args := volume.MounterArgs{FsUser: volumeutil.FsUserFrom(pod)}
	if security := pod.Spec.SecurityContext; security != nil {
		args.FsGroup = security.FSGroup
		args.FSGroupChangePolicy = security.FSGroupChangePolicy
	}
	folders := map[string]string{}
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		source := pod.Spec.Volumes[i].VolumeSource
		if source.ConfigMap == nil && source.Secret == nil && source.Projected == nil && source.DownwardAPI == nil {
			continue
		}
		spec := volume.NewSpecFromVolume(&pod.Spec.Volumes[i])
		plugin, err := manager.FindPluginBySpec(spec)
		if err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
		mounter, err := plugin.NewMounter(spec, pod)
		if err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
		if err := mounter.SetUp(args); err != nil {
			return fmt.Errorf("volume %s: %w", name, err)
		}
		folders[name] = mounter.GetPath()
	}
	return json.NewEncoder(os.Stdout).Encode(folders)
}

// read gives the pod, with the API server's defaults, and the other objects.
func read(file string) (*v1.Pod, []runtime.Object, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	var pod *v1.Pod
	var objects []runtime.Object
	documents := yaml.NewYAMLOrJSONDecoder(in, 4096)
	for {
		var raw runtime.RawExtension
		if err := documents.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		if strings.TrimSpace(string(raw.Raw)) == "" || string(raw.Raw) == "null" {
			continue
		}
		object, _, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
		if err != nil {
			return nil, nil, err
		}
		legacyscheme.Scheme.Default(object)
		if found, ok := object.(*v1.Pod); ok {
			pod = found
		} else {
			objects = append(objects, object)
		}
	}
	if pod == nil {
		return nil, nil, fmt.Errorf("%s: no Pod in it", file)
	}
	return pod, objects, nil
}

// token answers a TokenRequest.
func token(action clienttesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(clienttesting.CreateActionImpl)
	if !ok || action.GetSubresource() != "token" {
		return false, nil, nil
	}
	request, ok := create.GetObject().(*authenticationv1.TokenRequest)
	if !ok {
		return true, nil, fmt.Errorf("not a TokenRequest: %T", create.GetObject())
	}
	seconds := int64(0)
	if request.Spec.ExpirationSeconds != nil {
		seconds = *request.Spec.ExpirationSeconds
	}
	answer := request.DeepCopy()
	answer.Status = authenticationv1.TokenRequestStatus{
		Token: fmt.Sprintf("token %s/%s %s %d", action.GetNamespace(), create.Name,
			strings.Join(request.Spec.Audiences, ","), seconds),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second)),
	}
	return true, answer, nil
}
