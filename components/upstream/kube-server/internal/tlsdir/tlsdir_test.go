package tlsdir

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io/fs"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"socialweb.computer/upstream/kube-server/internal/flags"
)

var now = time.Now()

func layout(t *testing.T) flags.Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "k3s")
	return flags.Server{
		DataDir: dir, Bind: net.IPv4(127, 0, 0, 1), Port: 61000, Advertise: net.IPv4(10, 41, 0, 2), ClusterDomain: "cluster.local",
		ServiceCIDR: net.IPNet{IP: net.IPv4(10, 43, 0, 0), Mask: net.CIDRMask(16, 32)}, Kubeconfig: filepath.Join(dir, "admin"), SANs: []string{"x.example", "10.9.9.9"},
	}
}

func open(t *testing.T, s flags.Server) Dir {
	t.Helper()
	d, err := Open(s, now)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refused opens a folder that must be refused, and sees that the refusal changed nothing in it.
func refused(t *testing.T, s flags.Server, says string) {
	t.Helper()
	before := contents(t, s.TLS(""))
	_, err := Open(s, now)
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want it to say %q", err, says)
	}
	if !maps.Equal(before, contents(t, s.TLS(""))) {
		t.Error("the refusal changed files")
	}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// place puts an authority there before the first start, as the supervisor does: PKCS 8, as rcgen writes it.
func place(t *testing.T, s flags.Server, name string, change func(*x509.Certificate)) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "placed " + name}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	check(t, os.MkdirAll(s.TLS(""), 0o700))
	check(t, os.WriteFile(s.TLS(name+".crt"), encodeCert(der), 0o600))
	check(t, os.WriteFile(s.TLS(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAFirstStartLaysOutWhatK3sDoes(t *testing.T) {
	s := layout(t)
	open(t, s)
	for _, name := range []string{"client-ca", "server-ca", "request-header-ca", "client-admin", "client-controller", "client-scheduler",
		"client-kube-apiserver", "client-auth-proxy", "serving-kube-apiserver"} {
		if _, err := readPair(s.TLS(name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{s.TLS("service.key"), s.Cred("admin.kubeconfig"), s.Cred("controller.kubeconfig"), s.Cred("scheduler.kubeconfig")} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyThisUserCanReadAnything(t *testing.T) {
	s := layout(t)
	check(t, os.MkdirAll(s.TLS(""), 0o755))
	open(t, s)
	check(t, filepath.WalkDir(filepath.Join(s.DataDir, "server"), func(path string, e fs.DirEntry, err error) error {
		check(t, err)
		info, err := e.Info()
		if perm := info.Mode().Perm(); path != filepath.Join(s.DataDir, "server") && perm&0o077 != 0 {
			t.Errorf("%s has mode %o", path, perm)
		}
		return err
	}))
}

func TestALaterStartChangesNothing(t *testing.T) {
	s := layout(t)
	open(t, s)
	before := contents(t, s.DataDir)
	open(t, s)
	if !maps.Equal(before, contents(t, s.DataDir)) {
		t.Error("a start with nothing to do changed files")
	}
}

func TestAPlacedAuthorityIsUsedAndNeverReplaced(t *testing.T) {
	s := layout(t)
	for _, name := range []string{clientCA, serverCA, requestCA} {
		place(t, s, name, nil)
	}
	placed := contents(t, s.TLS(""))
	d := open(t, s)
	after := contents(t, s.TLS(""))
	for path, content := range placed {
		if after[path] != content {
			t.Errorf("%s was replaced", path)
		}
	}
	for _, l := range d.leaves() {
		got, err := readPair(s.TLS(l.name))
		check(t, err)
		if want := "placed " + l.ca; got.cert.Issuer.CommonName != want {
			t.Errorf("%s was issued by %q, not by %q", l.name, got.cert.Issuer.CommonName, want)
		}
	}
}

func TestOnePlacedAuthorityAndTheOthersGenerated(t *testing.T) {
	s := layout(t)
	place(t, s, clientCA, nil)
	open(t, s)
	placed, err := readPair(s.TLS(clientCA))
	check(t, err)
	generated, err := readPair(s.TLS(serverCA))
	check(t, err)
	if placed.cert.Subject.CommonName != "placed client-ca" || !strings.HasPrefix(generated.cert.Subject.CommonName, "kube-server-server-ca@") {
		t.Errorf("got %s and %s", placed.cert.Subject, generated.cert.Subject)
	}
}

func TestHalfAPairIsRefused(t *testing.T) {
	for _, half := range []string{".crt", ".key"} {
		s := layout(t)
		place(t, s, clientCA, nil)
		check(t, os.Remove(s.TLS(clientCA+half)))
		refused(t, s, "half of the pair")
	}
}

func TestAnUnusableAuthorityIsRefused(t *testing.T) {
	for says, change := range map[string]func(*x509.Certificate){
		"is not a certificate authority": func(c *x509.Certificate) { c.IsCA = false },
		"set the clock":                  func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) },
		"place a new pair":               func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) },
	} {
		s := layout(t)
		place(t, s, clientCA, change)
		refused(t, s, says)
	}
}

func TestAKeyOfAnotherCertificateIsRefused(t *testing.T) {
	s, other := layout(t), layout(t)
	place(t, s, clientCA, nil)
	place(t, other, clientCA, nil)
	check(t, os.Rename(other.TLS("client-ca.key"), s.TLS("client-ca.key")))
	refused(t, s, "private key does not match")
}

func TestABundleIsRefused(t *testing.T) {
	s := layout(t)
	place(t, s, clientCA, nil)
	data, err := os.ReadFile(s.TLS("client-ca.crt"))
	check(t, err)
	check(t, os.WriteFile(s.TLS("client-ca.crt"), bytes.Repeat(data, 2), 0o600))
	refused(t, s, "give one certificate")
}

func TestAnotherAuthorityThanOnEarlierStartsIsRefusedUntilItIsAccepted(t *testing.T) {
	s := layout(t)
	open(t, s)
	place(t, s, serverCA, nil)
	refused(t, s, "not those of earlier starts")
	check(t, os.Remove(s.TLS(record)))
	open(t, s)
}

func TestAnAuthorityThatWentMissingIsNotMadeUp(t *testing.T) {
	s := layout(t)
	open(t, s)
	check(t, os.Remove(s.TLS("request-header-ca.crt")))
	check(t, os.Remove(s.TLS("request-header-ca.key")))
	refused(t, s, "put the pair back")
}

func TestTheServingCertificateHasTheNamesThatClientsUse(t *testing.T) {
	s := layout(t)
	d := open(t, s)
	serving, err := readPair(s.TLS("serving-kube-apiserver"))
	check(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(d.authorities[serverCA].cert)
	for _, name := range []string{"127.0.0.1", "localhost", "10.41.0.2", "10.43.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "x.example", "10.9.9.9"} {
		if _, err := serving.cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Error(err)
		}
	}
}

func TestALeafIsIssuedAnewWhenItDoesNotMatch(t *testing.T) {
	for name, spoil := range map[string]func(*flags.Server){
		"another name":    func(s *flags.Server) { s.SANs = []string{"y.example"} },
		"another address": func(s *flags.Server) { s.Advertise = net.IPv4(10, 41, 0, 3) },
		"garbage":         func(s *flags.Server) { check(t, os.WriteFile(s.TLS("serving-kube-apiserver.crt"), []byte("x"), 0o600)) },
		"no key":          func(s *flags.Server) { check(t, os.Remove(s.TLS("serving-kube-apiserver.key"))) },
	} {
		s := layout(t)
		open(t, s)
		spoil(&s)
		d := open(t, s)
		renewed, err := d.Renew(now)
		check(t, err)
		serving, err := readPair(s.TLS("serving-kube-apiserver"))
		if err != nil || len(renewed) != 0 || serving.cert.Subject.CommonName != "kube-apiserver" || serving.cert.VerifyHostname(s.Advertise.String()) != nil ||
			serving.cert.VerifyHostname(s.SANs[0]) != nil {
			t.Errorf("%s: %v, renewed again: %v", name, err, renewed)
		}
	}
}

func TestALeafForAnotherUserIsIssuedAnew(t *testing.T) {
	s := layout(t)
	open(t, s)
	for _, end := range []string{".crt", ".key"} { // the same authority, usage and names: only the subject tells them apart
		check(t, os.Rename(s.TLS("client-admin"+end), s.TLS("client-scheduler"+end)))
	}
	open(t, s)
	got, err := readPair(s.TLS("client-scheduler"))
	check(t, err)
	if got.cert.Subject.CommonName != "system:kube-scheduler" || len(got.cert.Subject.Organization) != 0 {
		t.Errorf("the scheduler would be %s", got.cert.Subject)
	}
}

func TestALeafOfAnotherAuthorityIsIssuedAnew(t *testing.T) {
	s := layout(t)
	open(t, s)
	place(t, s, clientCA, nil)
	check(t, os.Remove(s.TLS(record)))
	open(t, s)
	admin, err := readPair(s.TLS("client-admin"))
	check(t, err)
	if admin.cert.Issuer.CommonName != "placed client-ca" {
		t.Errorf("still issued by %s", admin.cert.Issuer)
	}
}

func TestLeavesAreRenewedInTheirLast120Days(t *testing.T) {
	d := open(t, layout(t))
	// In this order: what was renewed on day 246 is not valid yet on day 1.
	for _, c := range []struct{ days, want int }{{1, 0}, {244, 0}, {246, 6}, {247, 0}} {
		renewed, err := d.Renew(now.Add(time.Duration(c.days) * 24 * time.Hour))
		check(t, err)
		if len(renewed) != c.want {
			t.Errorf("after %d days: renewed %v, want %d", c.days, renewed, c.want)
		}
	}
}

func TestARenewalReachesTheWrittenKubeconfig(t *testing.T) {
	s := layout(t)
	d := open(t, s)
	before, err := os.ReadFile(s.Kubeconfig)
	check(t, err)
	_, err = d.Renew(now.Add(300 * 24 * time.Hour))
	check(t, err)
	after, err := os.ReadFile(s.Kubeconfig)
	check(t, err)
	if bytes.Equal(before, after) {
		t.Error("the kubeconfig still has the old certificate")
	}
}

func TestNoLeafOutlivesItsAuthorityNorIsRenewedForNothing(t *testing.T) {
	s := layout(t)
	place(t, s, clientCA, func(c *x509.Certificate) { c.NotAfter = now.Add(48 * time.Hour) })
	d := open(t, s)
	admin, err := readPair(s.TLS("client-admin"))
	check(t, err)
	if !admin.cert.NotAfter.Equal(d.authorities[clientCA].cert.NotAfter) {
		t.Errorf("ends %s", admin.cert.NotAfter)
	}
	if renewed, err := d.Renew(now.Add(time.Hour)); err != nil || len(renewed) != 0 {
		t.Errorf("renewed %v, %v", renewed, err)
	}
}

func TestTheServiceKeyIsKept(t *testing.T) {
	s := layout(t)
	check(t, os.MkdirAll(s.TLS(""), 0o700))
	check(t, os.WriteFile(s.TLS("service.key"), []byte("placed"), 0o600))
	open(t, s)
	if data, _ := os.ReadFile(s.TLS("service.key")); string(data) != "placed" {
		t.Error("the service-account key was replaced")
	}
}

func TestKubeconfigsAreForTheRightUser(t *testing.T) {
	s := layout(t)
	open(t, s)
	for path, leaf := range map[string]string{s.Cred("controller.kubeconfig"): "client-controller", s.Cred("scheduler.kubeconfig"): "client-scheduler"} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		check(t, err)
		if config.Host != "https://127.0.0.1:61000" || config.CertFile != s.TLS(leaf+".crt") || config.CAFile != s.TLS("server-ca.crt") {
			t.Errorf("%s: %s %s", path, config.Host, config.CertFile)
		}
	}
	admin, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	check(t, err)
	want, err := os.ReadFile(s.TLS("client-admin.crt"))
	check(t, err)
	if !bytes.Equal(admin.CertData, want) || admin.CertFile != "" {
		t.Error("the written kubeconfig does not carry the administrator's certificate inside")
	}
}

func TestAFileLeftByAKilledWriteIsNoHindrance(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	check(t, os.WriteFile(filepath.Join(filepath.Dir(path), ".f.new"), []byte("half of something longer"), 0o600))
	check(t, writeFile(path, []byte("whole")))
	if got := contents(t, filepath.Dir(path)); len(got) != 1 || got[path] != "whole" {
		t.Errorf("got %v", got)
	}
}
