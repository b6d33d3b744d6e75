package tlsdir

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// The authorities, by the names of k3s's custom-CA feature.
const (
	clientCA  = "client-ca"
	serverCA  = "server-ca"
	requestCA = "request-header-ca"
)

// record is in the format of sha256sum, so that `sha256sum -c .ca-sha256` tells which authority changed.
const record = ".ca-sha256"

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func readPair(path string) (pair, error) {
	p, err := tls.LoadX509KeyPair(path+".crt", path+".key") // refuses a key of another certificate
	if err != nil {
		return pair{}, err
	}
	key, ok := p.PrivateKey.(crypto.Signer)
	if !ok || len(p.Certificate) != 1 {
		return pair{}, errors.New("give one certificate, and a key that can sign: the controller-manager signs with no bundle")
	}
	return pair{p.Leaf, key}, nil
}

// openAuthorities reads or generates them, and compares them with those of earlier starts. Clients, nodes and OpenBao hold
// certificates of the old ones: a silent change would cut them all off.
func (d Dir) openAuthorities(now time.Time) error {
	recorded, err := os.ReadFile(d.TLS(record))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var sums strings.Builder
	for _, name := range []string{clientCA, serverCA, requestCA} {
		if err := d.ensureAuthority(name, recorded == nil, now); err != nil {
			return err
		}
		data, err := os.ReadFile(d.TLS(name + ".crt"))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s.crt\n", sha256.Sum256(data), name)
	}
	if recorded != nil && string(recorded) != sums.String() {
		return fmt.Errorf("the certificate authorities in %s are not those of earlier starts (`sha256sum -c %s` there tells which): "+
			"put the old ones back, or remove %s to accept the new ones", d.TLS(""), record, d.TLS(record))
	}
	return errors.Join(writeFile(d.TLS(record), []byte(sums.String())), d.ensureServiceKey())
}

func (d Dir) ensureAuthority(name string, mayGenerate bool, now time.Time) error {
	path := d.TLS(name)
	_, noCert := os.Stat(path + ".crt")
	_, noKey := os.Stat(path + ".key")
	switch {
	case noCert == nil && noKey == nil:
	case noCert == nil || noKey == nil:
		return fmt.Errorf("half of the pair %s.crt and .key is there, and it is not replaced; put the other half beside it: %w", path, errors.Join(noCert, noKey))
	case !mayGenerate:
		return fmt.Errorf("the certificate authority of earlier starts is gone, put the pair back: %w", noCert)
	default:
		if err := generateAuthority(path, name, now); err != nil {
			return fmt.Errorf("cannot generate the certificate authority %s.crt: %w", path, err)
		}
	}
	ca, err := readAuthority(path, now)
	d.authorities[name] = ca
	return err
}

func generateAuthority(path, name string, now time.Time) error {
	keyPEM, key, err := newKey()
	if err != nil {
		return err
	}
	config := cert.Config{CommonName: fmt.Sprintf("kube-server-%s@%d", name, now.Unix()), NotBefore: now.Add(-clockSkew)}
	ca, err := cert.NewSelfSignedCACert(config, key)
	if err != nil {
		return err
	}
	if err := writeFile(path+".key", keyPEM); err != nil {
		return err
	}
	return writeFile(path+".crt", encodeCert(ca.Raw))
}

func readAuthority(path string, now time.Time) (pair, error) {
	ca, err := readPair(path)
	if err != nil {
		return ca, fmt.Errorf("cannot use the certificate authority %s.crt with its key: %w", path, err)
	}
	switch {
	case !ca.cert.BasicConstraintsValid || !ca.cert.IsCA:
		return ca, fmt.Errorf("%s.crt is not a certificate authority: its basic constraints do not say CA", path)
	case now.Before(ca.cert.NotBefore) || now.After(ca.cert.NotAfter):
		return ca, fmt.Errorf("%s.crt is valid from %s to %s and it is %s: set the clock, or place a new pair", path, ca.cert.NotBefore, ca.cert.NotAfter, now.UTC())
	}
	return ca, nil
}

// ensureServiceKey keeps the key that signs service-account tokens: a new one would end every token.
func (d Dir) ensureServiceKey() error {
	path := d.TLS("service.key")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	keyPEM, _, err := newKey()
	if err != nil {
		return err
	}
	return writeFile(path, keyPEM)
}

func newKey() (keyPEM []byte, key crypto.Signer, err error) {
	if keyPEM, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
		return nil, nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, nil, err
	}
	return keyPEM, parsed.(crypto.Signer), nil // an elliptic key signs
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
