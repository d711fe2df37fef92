package kernel

import (
	"bytes"
	"strings"
	"testing"
)

func TestPinOfThisCheckout(t *testing.T) {
	p, err := LoadPin()
	if err != nil {
		t.Fatal(err)
	}
	text, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, pinJSON) {
		t.Errorf("pin.json is not as Encode writes it:\n%s", text)
	}
}

// Each change turns a good pin into one that must be refused.
func TestBadPins(t *testing.T) {
	good := string(pinJSON)
	changes := map[string][2]string{
		"unknown field":          {`"version"`, `"colour": "red", "version"`},
		"wrong type":             {`"size": 166780612`, `"size": "166780612"`},
		"no size":                {`"size": 166780612`, `"size": 0`},
		"huge size":              {`"size": 166780612`, `"size": 1667806120000`},
		"short digest":           {`"703e`, `"`},
		"upper case digest":      {`"703e`, `"703E`},
		"path out of the pool":   {`"pool/main/l`, `"pool/../main/l`},
		"absolute path":          {`"pool/`, `"/pool/`},
		"not a package":          {`_all.deb"`, `_all.dsc"`},
		"package with a slash":   {`"linux-source-7.3"`, `"../linux-source-7.3"`},
		"version with a space":   {`"7.3.4"`, `"7.3.4 "`},
		"archive without scheme": {`"archives": []`, `"archives": ["example.org/x"]`},
		"archive with password":  {`"archives": []`, `"archives": ["https://a:b@example.org/x"]`},
		"trailing data":          {"]\n}", "]\n} {}"},
		"cut off":                {"]\n}", "]\n"},
	}
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, c[0], c[1], 1)
			if bad == good {
				t.Fatalf("%q is not in pin.json", c[0])
			}
			if p, err := ParsePin([]byte(bad)); err == nil {
				t.Errorf("accepted as %+v", p)
			}
		})
	}
	with := strings.Replace(good, `"archives": []`, `"archives": ["https://example.org/a/b.deb"]`, 1)
	if p, err := ParsePin([]byte(with)); err != nil || len(p.Archives) != 1 {
		t.Errorf("a pin with an archive: %+v, %v", p, err)
	}
}
