package manifest

import (
	"regexp"
	"slices"
	"strings"
)

var (
	envName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
)

// reserved are names that change how programs start, find code or reach the
// network; a secret of that name would be a way to run code. Names are
// compared in upper case, as http_proxy counts too.
var (
	reserved = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "LANG", "LANGUAGE", "TERM", "TZ",
		"ENV", "BASH_ENV", "IFS", "CDPATH", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "EDITOR", "VISUAL", "PAGER", "BROWSER",
		"GCONV_PATH", "NLSPATH", "LOCPATH", "GETCONF_DIR", "HOSTALIASES", "LOCALDOMAIN", "RES_OPTIONS", "RESOLV_HOST_CONF", "GLIBC_TUNABLES",
		"GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "GOMEMLIMIT", "GOGC", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH",
		"PERL5LIB", "PERL5OPT", "PERL5DB", "PERLLIB", "RUBYOPT", "RUBYLIB", "LUA_PATH", "LUA_CPATH", "LUA_INIT", "PHPRC", "PHP_INI_SCAN_DIR",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
		"OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES", "SSLKEYLOGFILE", "SSH_AUTH_SOCK", "SSH_ASKPASS", "PKG_CONFIG_PATH",
	}
	reservedPrefixes = []string{"BERTH_", "LD_", "DYLD_", "LC_", "MALLOC_", "NODE_", "NPM_CONFIG_", "PYTHON", "GIT_", "BASH_FUNC_"}
	// ownHeaders belong to the connection or to its routing, not to a secret.
	ownHeaders = []string{"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "expect",
		"proxy-authorization", "proxy-connection", "proxy-authenticate"}
)

// Reserved reports whether no secret may have this name.
func Reserved(name string) bool {
	upper := strings.ToUpper(name)
	return slices.Contains(reserved, upper) ||
		slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(upper, p) })
}

func (d *decoder) secrets(n node) []Secret {
	var list []Secret
	lines := map[string]int{}
	d.list(n, "secrets", maxSecrets, func(_ int, n node) {
		s := d.secret(n)
		if before, twice := lines[s.Name]; twice && s.Name != "" {
			d.fail(s.Pos, "remove one of them", "the secret %s stands twice, first on line %d", quote(s.Name), before)
		}
		lines[s.Name] = s.Line
		list = append(list, s)
	})
	return list
}

func (d *decoder) secret(n node) Secret {
	s := Secret{Pos: n.pos}
	if n.kind != kindMap {
		s.Name = d.secretName(n)
		return s
	}
	seen := d.mapping(n, "a secret",
		key{"name", func(n node) { s.Name = d.secretName(n) }},
		key{"for", func(n node) { s.For = d.secretHost(n) }},
		key{"header", func(n node) { s.Header = d.header(n) }},
	)
	if _, there := seen["name"]; !there {
		d.fail(n.pos, "add name: API_TOKEN", "a secret has no name")
	}
	_, host := seen["for"]
	_, header := seen["header"]
	if host != header {
		d.fail(n.pos, "for names the host and header the HTTP header that carries the secret to it", "a secret has only one of for and header")
	}
	return s
}

func (d *decoder) secretName(n node) string {
	s, ok := d.str(n, "the name of a secret", maxText)
	switch {
	case !ok:
	case len(s) > 128 || !envName.MatchString(s):
		// Not quoted: it may be the secret itself.
		d.fail(n.pos, "letters, digits and _, not beginning with a digit; never the value itself", "this is not a name of a secret")
	case Reserved(s):
		d.fail(n.pos, "choose a name of your own, such as MYAPP_"+strings.ToUpper(s), "the name %s is reserved: programs or Berth act on it", quote(s))
	}
	return s
}

func (d *decoder) secretHost(n node) string {
	s, ok := d.str(n, "for", maxText)
	if !ok {
		return ""
	}
	if fault := checkHost(s); fault != nil {
		d.fail(n.pos, fault.Hint, "for: %s", fault.Msg)
	}
	return s
}

func (d *decoder) header(n node) string {
	s, ok := d.str(n, "header", maxText)
	switch {
	case !ok:
	case len(s) > maxName || !headerName.MatchString(s):
		d.fail(n.pos, "a letter, then letters, digits and dashes", "%s is not a name of a header", quote(s))
	case slices.Contains(ownHeaders, strings.ToLower(s)):
		d.fail(n.pos, "", "the header %s belongs to the connection", quote(s))
	}
	return s
}
