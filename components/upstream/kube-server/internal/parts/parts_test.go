package parts

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"socialweb.computer/upstream/kube-server/internal/flags"
)

var server = flags.Server{
	DataDir: "/g/k3s", Datastore: "unixs:///r/kine.sock", DatastoreCA: "/ca", Bind: net.IPv4(127, 0, 0, 1), Port: 61000,
	Advertise: net.IPv4(10, 41, 0, 2), ClusterDomain: "cluster.local",
	ClusterCIDR: net.IPNet{IP: net.IPv4(10, 42, 0, 0), Mask: net.CIDRMask(16, 32)},
	ServiceCIDR: net.IPNet{IP: net.IPv4(10, 43, 0, 0), Mask: net.CIDRMask(16, 32)},
}

func args(t *testing.T, program string, user ...string) []string {
	t.Helper()
	out, err := arguments(program, words(server), user)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDefaultsAreFilledIn(t *testing.T) {
	for program, want := range map[string][]string{
		APIServer: {"--secure-port=61000", "--advertise-address=10.41.0.2", "--etcd-servers=unixs:///r/kine.sock", "--etcd-cafile=/ca",
			"--anonymous-auth=false", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--client-ca-file=/g/k3s/server/tls/client-ca.crt", "--service-cluster-ip-range=10.43.0.0/16"},
		Controller: {"--secure-port=0", "--leader-elect=false", "--cluster-cidr=10.42.0.0/16", "--root-ca-file=/g/k3s/server/tls/server-ca.crt",
			"--kubeconfig=/g/k3s/server/cred/controller.kubeconfig", "--controllers=*,tokencleaner",
			"--cluster-signing-kube-apiserver-client-key-file=/g/k3s/server/tls/client-ca.key", "--cluster-signing-kubelet-serving-key-file=/g/k3s/server/tls/server-ca.key"},
		Scheduler: {"--secure-port=0", "--leader-elect=false", "--kubeconfig=/g/k3s/server/cred/scheduler.kubeconfig"},
	} {
		got := args(t, program)
		for _, arg := range want {
			if !slices.Contains(got, arg) {
				t.Errorf("%s lacks %s: %v", program, arg, got)
			}
		}
		if i := slices.IndexFunc(got, func(arg string) bool { return strings.ContainsAny(arg, "{}#") }); i >= 0 {
			t.Errorf("%s: %s was not filled in", program, got[i])
		}
	}
}

func TestAnArgumentWithoutAValueIsLeftOut(t *testing.T) {
	if got := args(t, APIServer); slices.ContainsFunc(got, func(arg string) bool { return strings.HasPrefix(arg, "--etcd-certfile") }) {
		t.Errorf("no certificate was given: %v", got)
	}
}

func TestTheUsersArgumentsReplaceTheDefaults(t *testing.T) {
	got := args(t, APIServer, "api-audiences=https://a,https://b", "--anonymous-auth=true", "v=2", "feature-gates=A=true", "feature-gates=B=false", "profiling")
	if tail := strings.Join(got[len(got)-6:], " "); tail != "--api-audiences=https://a,https://b --anonymous-auth=true --v=2 --feature-gates=A=true --feature-gates=B=false --profiling=true" {
		t.Errorf("got %s", tail)
	}
	for _, key := range []string{"--api-audiences=", "--anonymous-auth=", "--profiling="} {
		if n := strings.Count(strings.Join(got, " "), key); n != 1 {
			t.Errorf("%s is there %d times", key, n)
		}
	}
}

// New can be called once in a process: the one call proves that upstream knows each of our arguments.
func TestUpstreamKnowsEveryArgumentAndAWrongOneIsNamed(t *testing.T) {
	wrong := server
	wrong.SchedulerArgs = []string{"no-such-flag=1"} // the scheduler's come last: the others have been accepted by then
	_, err := New(wrong)
	if err == nil || err.Error() != "an argument of kube-scheduler (--kube-scheduler-arg): unknown flag: --no-such-flag" {
		t.Errorf("got %v", err)
	}
}

func TestPingIsAnsweredBeforeAuthentication(t *testing.T) {
	handler := front(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	for target, want := range map[string]int{"GET /ping": 200, "POST /ping": 401, "GET /pingx": 401, "GET /readyz": 401} {
		method, path, _ := strings.Cut(target, " ")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != want || (want == 200 && w.Body.String() != "pong") {
			t.Errorf("%s: %d %q", target, w.Code, w.Body)
		}
	}
}

type answer struct {
	code int
	err  error
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code}, a.err
}

func TestOnlyAnAcceptedWatchCountsAsStarted(t *testing.T) {
	for _, c := range []struct {
		path string
		next answer
		want bool
	}{
		{"/api/v1/pods?watch=true", answer{code: 200}, true},
		{"/api/v1/pods?watch=true", answer{code: 403}, false},
		{"/api/v1/pods?watch=true", answer{code: 200, err: errors.New("refused")}, false},
		{"/api/v1/pods", answer{code: 200}, false},
	} {
		var seen atomic.Bool
		_, _ = watchSeen{next: c.next, seen: &seen}.RoundTrip(httptest.NewRequest(http.MethodGet, c.path, nil))
		if seen.Load() != c.want {
			t.Errorf("%s answered with %+v: got %v", c.path, c.next, seen.Load())
		}
	}
}
