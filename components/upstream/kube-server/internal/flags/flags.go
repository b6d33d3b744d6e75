// Package flags reads the part of k3s's server command line that this project uses. It only reads and checks text: it opens no
// file and starts nothing. The table of flags comes first, then what must hold between them.
package flags

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Server is a command line.
type Server struct {
	DataDir                                             string
	Datastore, DatastoreCA, DatastoreCert, DatastoreKey string // etcd API and how to authenticate to it
	Bind, Advertise, ClusterDNS                         net.IP
	Port                                                uint16
	tokenFile, agentTokenFile                           string
	Kubeconfig                                          string   // where to write the administrator's; empty = nowhere
	SANs                                                []string // further names and addresses of the serving certificate
	ClusterCIDR, ServiceCIDR                            net.IPNet
	ClusterDomain                                       string
	APIServerArgs, ControllerArgs, SchedulerArgs        []string // `key=value` each, in the order given
	disableAgent, disableCCM                            bool
	disable, ccmArgs                                    []string
	egress                                              string
}

// table declares every flag that is accepted; pflag refuses all others.
func (s *Server) table() *pflag.FlagSet {
	fs := pflag.NewFlagSet("kube-server server", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SortFlags = false
	fs.StringVar(&s.DataDir, "data-dir", "", "folder of all state; certificates are in DIR/server/tls (required)")
	fs.StringVar(&s.Datastore, "datastore-endpoint", "", "etcd API: unixs:///PATH, unix:///PATH, https://HOST:PORT or http://HOST:PORT (required)")
	fs.StringVar(&s.DatastoreCA, "datastore-cafile", "", "CA that the datastore's certificate is checked against")
	fs.StringVar(&s.DatastoreCert, "datastore-certfile", "", "client certificate for the datastore")
	fs.StringVar(&s.DatastoreKey, "datastore-keyfile", "", "key of the client certificate")
	fs.IPVar(&s.Bind, "bind-address", net.IPv4(127, 0, 0, 1), "address that the API server listens on")
	fs.Uint16Var(&s.Port, "https-listen-port", 6443, "port that the API server listens on")
	fs.IPVar(&s.Advertise, "advertise-address", nil, "address that pods use for the API server; it need not be on this host (required)")
	fs.StringVar(&s.tokenFile, "token-file", "", "file with the server token (required)")
	fs.StringVar(&s.agentTokenFile, "agent-token-file", "", "file with the agents' token")
	fs.StringVar(&s.Kubeconfig, "write-kubeconfig", "", "write the administrator's kubeconfig to this file")
	fs.StringSliceVar(&s.SANs, "tls-san", nil, "further name or address of the serving certificate (repeatable)")
	fs.IPNetVar(&s.ClusterCIDR, "cluster-cidr", ipv4Net(10, 42), "addresses of pods")
	fs.IPNetVar(&s.ServiceCIDR, "service-cidr", ipv4Net(10, 43), "addresses of services")
	fs.IPVar(&s.ClusterDNS, "cluster-dns", nil, "address of the DNS service (default: the tenth of service-cidr)")
	fs.StringVar(&s.ClusterDomain, "cluster-domain", "cluster.local", "DNS domain of the cluster")
	fs.StringArrayVar(&s.APIServerArgs, "kube-apiserver-arg", nil, "key=value for kube-apiserver, over our own (repeatable)")
	fs.StringArrayVar(&s.ControllerArgs, "kube-controller-manager-arg", nil, "key=value for kube-controller-manager (repeatable)")
	fs.StringArrayVar(&s.SchedulerArgs, "kube-scheduler-arg", nil, "key=value for kube-scheduler (repeatable)")
	fs.StringArrayVar(&s.ccmArgs, "kube-cloud-controller-manager-arg", nil, "accepted; there is no cloud controller manager inside")
	fs.StringVar(&s.egress, "egress-selector-mode", "disabled", "accepted; takes effect with node support")
	fs.StringSliceVar(&s.disable, "disable", nil, "k3s add-on to leave out (repeatable); none is inside")
	fs.BoolVar(&s.disableAgent, "disable-agent", false, "run no kubelet (required: none is inside)")
	fs.BoolVar(&s.disableCCM, "disable-cloud-controller", false, "run no cloud controller manager (required: none is inside)")
	return fs
}

// Usage lists the flags.
func Usage() string { return new(Server).table().FlagUsagesWrapped(120) }

// Parse reads and checks what follows `kube-server server`.
func Parse(args []string) (Server, error) {
	var s Server
	fs := s.table()
	if err := fs.Parse(args); err != nil {
		return s, fmt.Errorf("%w (kube-server takes only the k3s server flags that `kube-server --help` lists)", err)
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: every setting is a --flag", fs.Arg(0))
	}
	if s.ClusterDNS == nil {
		s.ClusterDNS = s.ServiceIP(10)
	}
	return s, s.check()
}

// ServiceIP is the nth address of the services; the first is the `kubernetes` service, where pods reach the API server.
func (s *Server) ServiceIP(n byte) net.IP {
	ip := append(net.IP(nil), s.ServiceCIDR.IP.To4()...)
	if ip != nil {
		ip[3] += n
	}
	return ip
}

// TokenFiles are the server's and, where one was given, the agents'.
func (s *Server) TokenFiles() []string {
	if s.agentTokenFile == "" {
		return []string{s.tokenFile}
	}
	return []string{s.tokenFile, s.agentTokenFile}
}

// URL is where the programs of this process, and the written kubeconfig, find the API server.
func (s *Server) URL() string {
	return "https://" + net.JoinHostPort(s.Bind.String(), strconv.Itoa(int(s.Port)))
}

// TLS is a file in server/tls of the data folder.
func (s *Server) TLS(name string) string { return filepath.Join(s.DataDir, "server", "tls", name) }

// Cred is a file in server/cred of the data folder.
func (s *Server) Cred(name string) string { return filepath.Join(s.DataDir, "server", "cred", name) }

func ipv4Net(a, b byte) net.IPNet {
	return net.IPNet{IP: net.IPv4(a, b, 0, 0).To4(), Mask: net.CIDRMask(16, 32)}
}

// What k3s knows for --disable and --egress-selector-mode.
var (
	addons      = []string{"coredns", "servicelb", "traefik", "local-storage", "metrics-server", "runtimes"}
	egressModes = []string{"disabled", "agent", "cluster", "pod"}
)

// check lists everything that is wrong, so that a person can fix all of it at once.
func (s *Server) check() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(!filepath.IsAbs(s.DataDir), "--data-dir %q: give an absolute path", s.DataDir)
	refuse(!validDatastore(s.Datastore), "--datastore-endpoint %q: give unixs:///PATH, unix:///PATH, https://HOST:PORT or http://HOST:PORT of a running kine: there is no datastore inside", s.Datastore)
	refuse((s.DatastoreCert == "") != (s.DatastoreKey == ""), "--datastore-certfile and --datastore-keyfile go together: one is missing")
	refuse(s.Bind.To4() == nil || s.Bind.IsUnspecified(), "--bind-address %s: give one IPv4 address of this host", s.Bind)
	refuse(s.Port == 0, "--https-listen-port 0: give the port; kubeconfigs and the `kubernetes` endpoint name it")
	refuse(s.Advertise.To4() == nil || s.Advertise.IsLoopback() || s.Advertise.IsUnspecified(),
		"--advertise-address %s: give the IPv4 address that pods use; Kubernetes refuses a loopback one", s.Advertise)
	refuse(s.tokenFile == "", "--token-file is missing: give the file that holds the server token")
	refuse(!ipv4Range(s.ClusterCIDR), "--cluster-cidr %s: give an IPv4 range of /24 or larger", &s.ClusterCIDR)
	refuse(!ipv4Range(s.ServiceCIDR), "--service-cidr %s: give an IPv4 range of /24 or larger", &s.ServiceCIDR)
	refuse(s.ClusterCIDR.Contains(s.ServiceCIDR.IP) || s.ServiceCIDR.Contains(s.ClusterCIDR.IP), "--cluster-cidr %s and --service-cidr %s overlap", &s.ClusterCIDR, &s.ServiceCIDR)
	refuse(!s.ServiceCIDR.Contains(s.ClusterDNS), "--cluster-dns %s lies outside --service-cidr %s", s.ClusterDNS, &s.ServiceCIDR)
	refuse(!validName(s.ClusterDomain), "--cluster-domain %q is not a DNS name", s.ClusterDomain)
	for _, san := range s.SANs {
		refuse(net.ParseIP(san) == nil && !validName(strings.TrimPrefix(san, "*.")), "--tls-san %q: give a DNS name or an address", san)
	}
	for _, name := range s.disable {
		refuse(!slices.Contains(addons, name), "--disable %q: k3s has no such add-on; it knows %s", name, strings.Join(addons, ", "))
	}
	refuse(!slices.Contains(egressModes, s.egress), "--egress-selector-mode %q: give one of %s", s.egress, strings.Join(egressModes, ", "))
	// What k3s would start and is not inside is refused, so that nobody believes that it runs.
	refuse(!s.disableAgent, "kube-server runs no kubelet: give --disable-agent")
	refuse(!s.disableCCM, "kube-server runs no cloud controller manager: give --disable-cloud-controller")
	return errors.Join(errs...)
}

func validDatastore(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "unix", "unixs":
		return u.Host == "" && filepath.IsAbs(u.Path)
	case "http", "https":
		return u.Port() != ""
	}
	return false
}

func ipv4Range(n net.IPNet) bool {
	ones, bits := n.Mask.Size()
	return bits == 32 && ones <= 24
}

func validName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }
