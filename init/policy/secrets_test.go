package policy

import (
	"strconv"
	"strings"
	"testing"
)

func TestCheckSecrets(t *testing.T) {
	r := Rights{Secrets: []string{"A", "B"}}
	if err := r.CheckSecrets(map[string]string{"A": "", "B": strings.Repeat("x", MaxSecret)}); err != nil {
		t.Error(err)
	}
	many := Rights{}
	all := map[string]string{}
	for n := range MaxSecrets + 1 {
		name := "N" + strconv.Itoa(1000+n)
		many.Secrets = append(many.Secrets, name)
		all[name] = strings.Repeat("x", MaxSecret)
	}
	five := Rights{Secrets: many.Secrets[:5]}
	for _, c := range []struct {
		r      Rights
		values map[string]string
		want   string
	}{
		{r, map[string]string{"A": "value"}, `"B" was not given`},
		{r, map[string]string{"A": "", "B": "", "C": "value"}, `"C" was given`},
		{Rights{}, map[string]string{"A": "value"}, `"A" was given`},
		{r, map[string]string{"A": "value", "B": "va\x00lue"}, "NUL"},
		{r, map[string]string{"A": strings.Repeat("v", MaxSecret+1), "B": ""}, "at most 65536"},
		{many, all, "at most 64"},
		{five, five.SecretsOf(all), "at most 262144"},
	} {
		err := c.r.CheckSecrets(c.values)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "val") || strings.Contains(err.Error(), "vvv") {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
