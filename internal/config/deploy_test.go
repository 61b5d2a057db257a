package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// notConfigs are the YAML files in deploy/ that are for other programs.
func notConfigs() map[string]bool { return map[string]bool{"prometheus-rules.yaml": true} }

func TestEverySampleInDeployIsAccepted(t *testing.T) {
	t.Setenv("SWITCHBACK_BLUE_PASSWORD", "p")
	t.Setenv("SWITCHBACK_TOKEN", "t")
	files, err := filepath.Glob(filepath.Join("..", "..", "deploy", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	loaded := 0
	for _, file := range files {
		if notConfigs()[filepath.Base(file)] {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(text); err != nil {
			t.Errorf("%s:\n%v", file, err)
		}
		loaded++
	}
	if loaded < 3 {
		t.Errorf("%d samples in deploy, wanted identity, prefix and TLS at least", loaded)
	}
}

func TestTheConfigurationInTheReadmeIsAccepted(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```yaml\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("the README shows no configuration")
	}
	if _, err := Parse([]byte(block)); err != nil {
		t.Error(err)
	}
}
