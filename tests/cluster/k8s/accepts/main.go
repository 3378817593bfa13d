// Command accepts asks the kubelet's own file source which manifests of a folder it takes.
//
//	accepts [-dump] [-version 1.35] DIR NODE
//
// For each pod taken it prints "ok NAMESPACE/NAME UID", with -dump the pod as the kubelet decoded it,
// one JSON object a line. With -version it judges as that version does by default: before 1.35 that is
// with no option of the validation on. For each file refused it prints "refused FILE: REASON" on stderr. The exit
// status is 1 when not every file of the folder gave a pod.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	core "k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// reasons is a logger that keeps what the file source complains about: it has no other way to report it.
type reasons struct {
	mu   sync.Mutex
	said []string
}

func (r *reasons) Init(logr.RuntimeInfo)                  {}
func (r *reasons) Enabled(int) bool                       { return true }
func (r *reasons) WithValues(_ ...any) logr.LogSink       { return r }
func (r *reasons) WithName(_ string) logr.LogSink         { return r }
func (r *reasons) Error(err error, msg string, kv ...any) { r.add(err, msg, kv) }

// Info keeps only what makes the kubelet drop a pod without an error.
func (r *reasons) Info(_ int, msg string, kv ...any) {
	if strings.Contains(msg, "ignoring") {
		r.add(nil, msg, kv)
	}
}

func (r *reasons) add(err error, msg string, kv []any) {
	subject := "-"
	for i := 0; i+1 < len(kv); i += 2 {
		if kv[i] == "path" || kv[i] == "pod" {
			subject = fmt.Sprint(kv[i+1])
		}
	}
	if err != nil {
		msg = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("refused %s: %s", subject, msg))
}

// unobserved is a start-up latency observer that observes nothing.
type unobserved struct{}

func (unobserved) ObservedPodOnWatch(*v1.Pod, time.Time) {}

func main() {
	dump := flag.Bool("dump", false, "print the decoded pods as JSON")
	emulated := flag.String("version", "", "judge as this version does by default")
	flag.Parse()
	if *emulated != "" {
		if err := utilfeature.DefaultMutableFeatureGate.SetEmulationVersion(version.MustParse(*emulated)); err != nil {
			fmt.Fprintf(os.Stderr, "accepts: %v\n", err)
			os.Exit(2)
		}
	}
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: accepts [-dump] [-version VERSION] DIR NODE")
		os.Exit(2)
	}
	strict := *emulated != "" && version.MustParse(*emulated).LessThan(version.MustParse("1.35"))
	taken, files, err := ask(flag.Arg(0), flag.Arg(1), *dump, strict)
	if err != nil {
		fmt.Fprintf(os.Stderr, "accepts: %v\n", err)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stderr, "taken %d of %d files\n", taken, files)
	if taken != files {
		os.Exit(1)
	}
}

// refusal is what the file source of a version before 1.35 says of a pod that a later one takes, or nothing.
func refusal(pod *v1.Pod) string {
	internal := &core.Pod{}
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), internal, nil); err != nil {
		return err.Error()
	}
	if errs := validation.ValidatePodCreate(internal, validation.PodValidationOptions{}); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
}

func ask(dir, node string, dump, strict bool) (taken, files int, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "[^.]*"))
	if err != nil {
		return 0, 0, err
	}
	// As the kubelet does at start; privileged pods do not validate otherwise.
	capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true})
	logged := &reasons{}
	logger := logr.New(logged)
	ctx := klog.NewContext(context.Background(), logger)
	pods := config.NewPodConfig(&record.FakeRecorder{}, unobserved{})
	config.NewSourceFile(logger, dir, types.NodeName(node), time.Hour, pods.Channel(ctx, kubetypes.FileSource))
	var update kubetypes.PodUpdate
	select {
	// The first listing of the folder is one update with every pod in it, even when there is none.
	case update = <-pods.Updates():
	case <-time.After(time.Minute):
		return 0, 0, fmt.Errorf("%s: the file source did not answer", dir)
	}
	for _, pod := range update.Pods {
		if strict {
			if why := refusal(pod); why != "" {
				logged.add(errors.New(why), "", []any{"pod", pod.Name})
				continue
			}
		}
		taken++
		if !dump {
			fmt.Printf("ok %s/%s %s\n", pod.Namespace, pod.Name, pod.UID)
			continue
		}
		line, err := json.Marshal(pod)
		if err != nil {
			return 0, 0, err
		}
		fmt.Println(string(line))
	}
	logged.mu.Lock()
	defer logged.mu.Unlock()
	for _, line := range logged.said {
		fmt.Fprintln(os.Stderr, line)
	}
	return taken, len(names), nil
}
