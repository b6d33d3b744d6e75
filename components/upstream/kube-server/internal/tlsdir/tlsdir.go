// Package tlsdir lays out <data-dir>/server the way k3s does: certificate authorities, leaves and kubeconfigs. It serves
// nothing and talks to nobody.
//
//	tlsdir.go      Open, Renew, kubeconfigs, and how a file is written
//	authority.go   the three certificate authorities and the service-account key: used when there, generated when missing
//	leaf.go        the certificates that are issued here, and when one is issued anew
//
// A pair that is there is never replaced: whoever placed it (the supervisor, before the first start) has given its certificate
// to others. Leaves are ours and are issued anew whenever they do not match.
package tlsdir

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"socialweb.computer/upstream/kube-server/internal/flags"
)

// Dir is the open folder: its authorities have been read and checked.
type Dir struct {
	flags.Server
	authorities map[string]pair
}

// Open makes the folder complete: what is missing is generated, what is there is checked, leaves that do not match are issued anew.
func Open(s flags.Server, now time.Time) (Dir, error) {
	d := Dir{Server: s, authorities: map[string]pair{}}
	for _, dir := range []string{s.TLS(""), s.Cred("")} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, 0o700)); err != nil {
			return d, err
		}
	}
	if err := d.openAuthorities(now); err != nil {
		return d, err
	}
	_, err := d.Renew(now)
	return d, err
}

// Renew issues each leaf anew that is due, says which, and writes the kubeconfigs that hold one. It may run while the programs
// do: they read the files again by themselves.
func (d Dir) Renew(now time.Time) ([]string, error) {
	var renewed []string
	for _, l := range d.leaves() {
		if l.good(d, now) {
			continue
		}
		if err := l.issue(d, now); err != nil {
			return renewed, fmt.Errorf("cannot issue the certificate %s: %w", d.TLS(l.name+".crt"), err)
		}
		renewed = append(renewed, l.name)
	}
	return renewed, d.writeKubeconfigs()
}

// writeKubeconfigs writes one per program, which refers to files that the program reads again when they change, and what k3s
// writes for --write-kubeconfig: everything inside, so that it can be carried elsewhere.
func (d Dir) writeKubeconfigs() error {
	for name, leaf := range map[string]string{"admin": "client-admin", "controller": "client-controller", "scheduler": "client-scheduler"} {
		config := d.kubeconfig(leaf)
		if err := writeKubeconfig(d.Cred(name+".kubeconfig"), config); err != nil {
			return err
		}
	}
	if d.Kubeconfig == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(d.Kubeconfig), 0o700); err != nil {
		return err
	}
	admin := d.kubeconfig("client-admin")
	if err := api.FlattenConfig(&admin); err != nil {
		return err
	}
	return writeKubeconfig(d.Kubeconfig, admin)
}

func (d Dir) kubeconfig(leaf string) api.Config {
	const name = "default" // k3s's
	cluster := &api.Cluster{Server: d.URL(), CertificateAuthority: d.TLS(serverCA + ".crt")}
	user := &api.AuthInfo{ClientCertificate: d.TLS(leaf + ".crt"), ClientKey: d.TLS(leaf + ".key")}
	return api.Config{
		Clusters:       map[string]*api.Cluster{name: cluster},
		AuthInfos:      map[string]*api.AuthInfo{name: user},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}

func writeKubeconfig(path string, config api.Config) error {
	data, err := clientcmd.Write(config)
	if err != nil {
		return err
	}
	if err := writeFile(path, data); err != nil {
		return fmt.Errorf("cannot write the kubeconfig %s: %w", path, err)
	}
	return nil
}

// writeFile replaces path in one step: a reader, and whoever comes after a crash, sees the old content or the new, never a part.
// The file is 0600 from its creation. One that has the content already is left alone.
func writeFile(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
