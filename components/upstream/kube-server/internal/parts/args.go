package parts

import (
	"embed"
	"strconv"
	"strings"

	"socialweb.computer/upstream/kube-server/internal/flags"
)

// defaults has one file per program: `key=value` lines with comments.
//
//go:embed args
var defaults embed.FS

// arguments are the defaults of a program with the user's over them: a key that the user gives replaces the default, and may be
// given more than once. A bare key is `key=true`, and leading dashes are dropped, as k3s does.
func arguments(program string, words *strings.Replacer, user []string) ([]string, error) {
	text, err := defaults.ReadFile("args/" + program)
	if err != nil {
		return nil, err
	}
	var given []string
	isGiven := map[string]bool{}
	for _, arg := range user {
		key, value, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !found {
			value = "true"
		}
		isGiven[key] = true
		given = append(given, "--"+key+"="+value)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if value = words.Replace(value); value != "" && key[0] != '#' && !isGiven[key] {
			out = append(out, "--"+key+"="+value)
		}
	}
	return append(out, given...), nil
}

func words(s flags.Server) *strings.Replacer {
	return strings.NewReplacer(
		"{bind}", s.Bind.String(), "{port}", strconv.Itoa(int(s.Port)), "{advertise}", s.Advertise.String(),
		"{datastore}", s.Datastore, "{datastore-ca}", s.DatastoreCA, "{datastore-cert}", s.DatastoreCert, "{datastore-key}", s.DatastoreKey,
		"{cluster-cidr}", s.ClusterCIDR.String(), "{service-cidr}", s.ServiceCIDR.String(), "{domain}", s.ClusterDomain,
		"{tls}", s.TLS(""), "{cred}", s.Cred(""), "{data}", s.DataDir)
}
