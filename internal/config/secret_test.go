package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"
)

func TestASecretNeverPrints(t *testing.T) {
	c := mustParse(t, full)
	hex := fmt.Sprintf("%x", "hunter2")
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%10s", "%U", "%!"} {
		fmt.Fprintf(&out, verb, c.Clusters["blue"].SASL.Password)
		fmt.Fprintf(&out, verb, c)
		fmt.Fprintf(&out, verb, *c)
		fmt.Fprintf(&out, verb, []Secret{c.Admin.Token})
	}
	fmt.Fprintln(&out, c.Admin.Token, c.Admin, c.Admin.Token.String(), c.Admin.Token.GoString())
	for _, encode := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		for _, value := range []any{c, c.Admin.Token, map[string]Secret{"k": "s3cr3t"}} {
			text, err := encode(value)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(text)
		}
	}
	logger := zerolog.New(&out)
	logger.Info().Interface("config", c).Stringer("token", c.Admin.Token).Any("password", c.Admin.Token).Msg("")
	slog.New(slog.NewTextHandler(&out, nil)).Info("", "token", c.Admin.Token, "config", c.Admin)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("", "token", c.Admin.Token, "config", c.Admin)
	for _, leak := range []string{"hunter2", "s3cr3t", hex, strings.ToUpper(hex)} {
		if at := strings.Index(out.String(), leak); at >= 0 {
			t.Errorf("%q leaks: …%s", leak, out.String()[max(0, at-60):at+len(leak)])
		}
	}
	if !strings.Contains(out.String(), masked) {
		t.Error("nothing was printed at all")
	}
}

func TestProblemsQuoteNoSecret(t *testing.T) {
	for _, password := range []string{"*hunter2", "&hunter2 x", "{a: hunter2}", "[hunter2]", "!hunter2 x", "@hunter2", "`hunter2", "%hunter2", "'hunter2", "a: b: hunter2", "${hunter2 }"} {
		text := strings.Replace(small, `["b1:9092"]`, "[\"b1:9092\"], sasl: {mechanism: PLAIN, username: u, password: "+password+"}", 1)
		_, problems := parse([]byte(text), closed())
		if err := problems.err(); err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("password: %s\n%v", password, err)
		}
	}
}
