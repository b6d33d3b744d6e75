package tlsdir

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// leafLife and renewBefore are k3s's: a year, renewed in its last 120 days.
	leafLife    = 365 * 24 * time.Hour
	renewBefore = 120 * 24 * time.Hour
	// clockSkew lets a client whose clock is a little behind believe a fresh certificate.
	clockSkew = time.Hour
)

// leaf is a certificate that is issued here.
type leaf struct {
	name    string // of the files, without .crt and .key
	ca      string
	subject pkix.Name
	usage   x509.ExtKeyUsage
	dns     []string
	ips     []net.IP
}

// leaves are k3s's, as far as there is somebody inside who uses them.
func (d Dir) leaves() []leaf {
	client := func(name, ca, cn string, groups ...string) leaf {
		return leaf{name: name, ca: ca, usage: x509.ExtKeyUsageClientAuth, subject: pkix.Name{CommonName: cn, Organization: groups}}
	}
	serving := leaf{name: "serving-kube-apiserver", ca: serverCA, usage: x509.ExtKeyUsageServerAuth, subject: pkix.Name{CommonName: "kube-apiserver"}}
	serving.dns, serving.ips = d.servingNames()
	return []leaf{
		client("client-admin", clientCA, "system:admin", "system:masters"),
		client("client-controller", clientCA, "system:kube-controller-manager"),
		client("client-scheduler", clientCA, "system:kube-scheduler"),
		// What the API server shows to kubelets. A kubelet asks the API server back whether this user may; system:masters needs no
		// binding, and its key lies beside the one of the client CA, so that a weaker group would protect nothing.
		client("client-kube-apiserver", clientCA, "system:apiserver", "system:masters"),
		client("client-auth-proxy", requestCA, "system:auth-proxy"),
		serving,
	}
}

// servingNames are the names that the API server answers to: on this host, for pods, and what was asked for.
func (d Dir) servingNames() (dns []string, ips []net.IP) {
	dns = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + d.ClusterDomain}
	ips = []net.IP{net.IPv4(127, 0, 0, 1), d.Advertise, d.ServiceIP(1)}
	for _, san := range d.SANs {
		if ip := net.ParseIP(san); ip != nil {
			ips = append(ips, ip)
		} else {
			dns = append(dns, san)
		}
	}
	return dns, ips
}

// good is false for anything that is not what would be issued now, unreadable files included.
func (l leaf) good(d Dir, now time.Time) bool {
	have, err := readPair(d.TLS(l.name))
	if err != nil {
		return false
	}
	ca, c := d.authorities[l.ca], have.cert
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	_, err = c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{l.usage}})
	// Near its end one is due only when a new one would end later: none outlives its authority.
	due := now.After(c.NotAfter.Add(-renewBefore)) && c.NotAfter.Before(end(ca, now))
	return err == nil && !due && c.Subject.String() == l.subject.String() &&
		slices.Equal(c.DNSNames, l.dns) && slices.EqualFunc(c.IPAddresses, l.ips, net.IP.Equal)
}

func end(ca pair, now time.Time) time.Time {
	if end := now.Add(leafLife).UTC().Truncate(time.Second); end.Before(ca.cert.NotAfter) {
		return end
	}
	return ca.cert.NotAfter
}

func (l leaf) issue(d Dir, now time.Time) error {
	keyPEM, key, err := newKey()
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	ca := d.authorities[l.ca]
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      l.subject,
		NotBefore:    now.Add(-clockSkew).UTC(),
		NotAfter:     end(ca, now),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{l.usage},
		DNSNames:     l.dns,
		IPAddresses:  l.ips,
	}, ca.cert, key.Public(), ca.key)
	if err != nil {
		return err
	}
	if err := writeFile(d.TLS(l.name+".key"), keyPEM); err != nil {
		return err
	}
	return writeFile(d.TLS(l.name+".crt"), encodeCert(der))
}
