package flags

import (
	"slices"
	"strings"
	"testing"
)

// whole is the command line that the supervisor's recipe gives.
func whole(more ...string) []string {
	return append([]string{
		"--disable-agent", "--disable=traefik", "--disable=servicelb", "--disable-cloud-controller", "--data-dir", "/g/k3s",
		"--datastore-endpoint", "unixs:///r/kine.sock", "--datastore-cafile", "/ca", "--datastore-certfile", "/crt", "--datastore-keyfile", "/key",
		"--egress-selector-mode", "cluster", "--bind-address", "127.0.0.1", "--https-listen-port", "61000", "--advertise-address", "10.41.0.2",
		"--token-file", "/t", "--agent-token-file", "/a", "--write-kubeconfig", "/g/k3s/admin-do-not-read", "--tls-san", "one.example", "--tls-san", "10.9.9.9",
		"--kube-cloud-controller-manager-arg=secure-port=61002",
		"--kube-apiserver-arg=api-audiences=https://a,https://b", "--kube-apiserver-arg=service-account-issuer=https://a",
	}, more...)
}

func TestTheWholeCommandLineIsRead(t *testing.T) {
	s, err := Parse(whole("--kube-scheduler-arg=v=4"))
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		s.DataDir: "/g/k3s", s.Datastore: "unixs:///r/kine.sock", s.DatastoreCA + s.DatastoreCert + s.DatastoreKey: "/ca/crt/key",
		s.URL(): "https://127.0.0.1:61000", s.Advertise.String(): "10.41.0.2", s.Kubeconfig: "/g/k3s/admin-do-not-read",
		strings.Join(s.TokenFiles(), " "): "/t /a", strings.Join(s.SANs, " "): "one.example 10.9.9.9",
		strings.Join(s.APIServerArgs, " "): "api-audiences=https://a,https://b service-account-issuer=https://a",
		strings.Join(s.SchedulerArgs, " "): "v=4", s.TLS("x"): "/g/k3s/server/tls/x", s.Cred("y"): "/g/k3s/server/cred/y",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestDefaultsAreThoseOfK3s(t *testing.T) {
	s, err := Parse(whole())
	if err != nil {
		t.Fatal(err)
	}
	got := []string{s.ClusterCIDR.String(), s.ServiceCIDR.String(), s.ClusterDNS.String(), s.ClusterDomain, s.ServiceIP(1).String()}
	if want := []string{"10.42.0.0/16", "10.43.0.0/16", "10.43.0.10", "cluster.local", "10.43.0.1"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if s, _ = Parse(whole("--service-cidr", "172.20.0.0/16")); s.ClusterDNS.String() != "172.20.0.10" {
		t.Errorf("the DNS address %s does not follow the service range", s.ClusterDNS)
	}
}

func TestWhatIsWrongIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--rootless", "unknown flag: --rootless"},
		{"--cluster-init", "unknown flag: --cluster-init"},
		{"extra", `unexpected argument "extra"`},
		{"--data-dir relative", "--data-dir"},
		{"--data-dir", "flag needs an argument"},
		{"--datastore-endpoint mysql://x", "--datastore-endpoint"},
		{"--datastore-endpoint unixs://relative.sock", "--datastore-endpoint"},
		{"--datastore-endpoint https://host", "--datastore-endpoint"},
		{"--datastore-endpoint=", "there is no datastore inside"},
		{"--datastore-keyfile=", "go together"},
		{"--bind-address ::1", "--bind-address"},
		{"--bind-address 0.0.0.0", "--bind-address"},
		{"--bind-address nowhere", "--bind-address"},
		{"--https-listen-port 0", "--https-listen-port"},
		{"--https-listen-port 70000", "--https-listen-port"},
		{"--advertise-address 127.0.0.1", "--advertise-address"},
		{"--advertise-address fd00::1", "--advertise-address"},
		{"--token-file=", "--token-file is missing"},
		{"--cluster-cidr fd00::/64", "--cluster-cidr"},
		{"--cluster-cidr 10.42.0.0/30", "--cluster-cidr"},
		{"--service-cidr fd00::/64", "--service-cidr"},
		{"--cluster-cidr 10.0.0.0/8", "overlap"},
		{"--cluster-dns 10.44.0.10", "--cluster-dns"},
		{"--cluster-domain not_a_name", "--cluster-domain"},
		{"--tls-san https://x", "--tls-san"},
		{"--disable traefic", `--disable "traefic"`},
		{"--egress-selector-mode clusters", "--egress-selector-mode"},
		{"--disable-agent=false", "kube-server runs no kubelet"},
		{"--disable-cloud-controller=false", "kube-server runs no cloud controller manager"},
	} {
		_, err := Parse(whole(strings.Fields(c.args)...))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want it to say %q", c.args, err, c.says)
		}
	}
}

func TestEverythingThatIsWrongIsToldAtOnce(t *testing.T) {
	_, err := Parse(whole("--data-dir", "x", "--cluster-dns", "1.1.1.1", "--disable-agent=false"))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, got %v", err)
	}
}

func TestUsageNamesEveryFlagThatTheRecipeGives(t *testing.T) {
	usage := Usage()
	for _, arg := range whole() {
		name, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(name, "--") && !strings.Contains(usage, name+" ") {
			t.Errorf("usage does not name %s", name)
		}
	}
}
