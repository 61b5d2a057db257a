package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// wantProblem fails unless text is refused with a problem at path whose words contain want and that knows its line.
func wantProblem(t *testing.T, text, path, want string) {
	t.Helper()
	_, problems := parse([]byte(text), closed())
	for _, p := range problems.list {
		if p.Path != path || !strings.Contains(p.Text+" "+p.Hint, want) {
			continue
		}
		if p.Line == 0 {
			t.Errorf("the line of %s is not known", path)
		}
		return
	}
	t.Errorf("no problem at %s with %q, but: %v", path, want, problems.err())
}

// with is small with one text replaced; it must be there.
func with(t *testing.T, old, replacement string) string {
	t.Helper()
	if !strings.Contains(small, old) {
		t.Fatalf("%q is not in the sample", old)
	}
	return strings.Replace(small, old, replacement, 1)
}

func TestEachMistakeIsNamed(t *testing.T) {
	const listen = "listen: 127.0.0.1:9092"
	more := func(line string) string { return with(t, listen, listen+"\n    "+line) }
	blue := func(text string) string { return with(t, `{bootstrap: ["b1:9092"]}`, text) }
	tests := map[string]struct{ text, path, want string }{
		"unknown key":             {more("listn: x"), "virtual_clusters[0].listn", `did you mean "listen"`},
		"unknown key at the top":  {small + "virtual_cluster: []\n", "virtual_cluster", `did you mean "virtual_clusters"`},
		"unknown key far off":     {small + "zzzzzzzz: 1\n", "zzzzzzzz", "known keys: admin, clusters"},
		"key twice":               {small + "log: {level: info, level: debug}\n", "log.level", "twice"},
		"list for a word":         {small + "log: {level: [info]}\n", "log.level", "text is wanted"},
		"word for a list":         {blue(`{bootstrap: b1:9092}`), "clusters.blue.bootstrap", "[one, two]"},
		"word for keys":           {small + "log: info\n", "log", "{key: value}"},
		"alias":                   {small + "log: &a {level: info}\n", "log", "aliases"},
		"number without unit":     {small + "cutover: {max_pause: 30}\n", "cutover.max_pause", "unit"},
		"no number":               {small + "limits: {connections: many}\n", "limits.connections", "digits"},
		"no bool":                 {small + "replication: {raise_producer_id_expiration: yes}\n", "replication.raise_producer_id_expiration", "true or false"},
		"variable not set":        {small + "admin: {token: \"${NO_SUCH_TOKEN}\"}\n", "admin.token", "NO_SUCH_TOKEN"},
		"variable empty":          {small + "admin: {token: \"${EMPTY}\"}\n", "admin.token", "EMPTY"},
		"variable not closed":     {small + "admin: {token: \"${EMPTY\"}\n", "admin.token", "${NAME}"},
		"secret file missing":     {small + "admin: {token: file:/no/where}\n", "admin.token", "readable"},
		"no bootstrap":            {blue(`{}`), "clusters.blue.bootstrap", "no bootstrap"},
		"bootstrap without port":  {blue(`{bootstrap: [b1]}`), "clusters.blue.bootstrap[0]", "host:port"},
		"bootstrap port zero":     {blue(`{bootstrap: ["b1:0"]}`), "clusters.blue.bootstrap[0]", "1 to 65535"},
		"bootstrap with scheme":   {blue(`{bootstrap: ["kafka://b1:9092"]}`), "clusters.blue.bootstrap[0]", "host:port"},
		"bootstrap host":          {blue(`{bootstrap: ["b 1:9092"]}`), "clusters.blue.bootstrap[0]", "neither a name"},
		"bootstrap is a wildcard": {blue(`{bootstrap: ["0.0.0.0:9092"]}`), "clusters.blue.bootstrap[0]", "listen on"},
		"one cluster, two names":  {blue(`{bootstrap: ["G1:9092"]}`), "clusters.green.bootstrap[0]", "cluster blue too"},
		"bootstrap is ourselves":  {blue(`{bootstrap: ["localhost:9095"]}`), "clusters.blue.bootstrap[0]", "own address"},
		"cluster name":            {strings.ReplaceAll(small, "blue", "bl.ue"), "clusters.bl.ue", "cannot be a name"},
		"tls not enabled":         {blue(`{bootstrap: ["b1:9092"], tls: {ca: x}}`), "clusters.blue.tls", "enabled: true"},
		"client cert, no key":     {blue(`{bootstrap: ["b1:9092"], tls: {enabled: true, cert: x}}`), "clusters.blue.tls.key", "without a key"},
		"client key, no cert":     {blue(`{bootstrap: ["b1:9092"], tls: {enabled: true, key: x}}`), "clusters.blue.tls.cert", "without a cert"},
		"server name":             {blue(`{bootstrap: ["b1:9092"], tls: {enabled: true, server_name: "a:1"}}`), "clusters.blue.tls.server_name", "not a host"},
		"sasl mechanism":          {blue(`{bootstrap: ["b1:9092"], sasl: {mechanism: SCRAM-SHA-265, username: u, password: p}}`), "clusters.blue.sasl.mechanism", "SCRAM-SHA-256?"},
		"sasl no mechanism":       {blue(`{bootstrap: ["b1:9092"], sasl: {username: u, password: p}}`), "clusters.blue.sasl.mechanism", "empty"},
		"sasl no user":            {blue(`{bootstrap: ["b1:9092"], sasl: {mechanism: PLAIN, password: p}}`), "clusters.blue.sasl.username", "no user name"},
		"sasl no password":        {blue(`{bootstrap: ["b1:9092"], sasl: {mechanism: PLAIN, username: u}}`), "clusters.blue.sasl.password", "no password"},
		"no name":                 {with(t, "name: main", "name: ''"), "virtual_clusters[0].name", "no name"},
		"bad name":                {with(t, "name: main", "name: a b"), "virtual_clusters[0].name", "cannot be a name"},
		"no such active":          {with(t, "active: blue", "active: blu"), "virtual_clusters[0].active", `did you mean "blue"`},
		"no active":               {with(t, "active: blue", "active:"), "virtual_clusters[0].active", "no cluster is named"},
		"no such standby":         {with(t, "standby: green", "standby: red"), "virtual_clusters[0].standby", "clusters: blue, green"},
		"standby is active":       {with(t, "standby: green", "standby: blue"), "virtual_clusters[0].standby", "both blue"},
		"no listen":               {with(t, listen, "offsets: preserved"), "virtual_clusters[0].listen", "no address"},
		"listen without port":     {with(t, listen, "listen: 127.0.0.1"), "virtual_clusters[0].listen", "host:port"},
		"listen port zero":        {with(t, listen, "listen: 127.0.0.1:0"), "virtual_clusters[0].listen", "1 to 65535"},
		"wildcard, no host":       {with(t, listen, "listen: 0.0.0.0:9092"), "virtual_clusters[0].advertised_host", "every address"},
		"wildcard v6, no host":    {with(t, listen, `listen: "[::]:9092"`), "virtual_clusters[0].advertised_host", "every address"},
		"empty host, no host":     {with(t, listen, `listen: ":9092"`), "virtual_clusters[0].advertised_host", "every address"},
		"advertised wildcard":     {more("advertised_host: 0.0.0.0"), "virtual_clusters[0].advertised_host", "cannot connect"},
		"advertised wildcard v6":  {more(`advertised_host: "::"`), "virtual_clusters[0].advertised_host", "cannot connect"},
		"advertised with port":    {more("advertised_host: kafka:9092"), "virtual_clusters[0].advertised_host", "without port"},
		"no broker ports":         {more("broker_ports: {count: 0}"), "virtual_clusters[0].broker_ports.count", "at least one"},
		"broker ports too high":   {more("broker_ports: {start: 65530, count: 16}"), "virtual_clusters[0].broker_ports.start", "out of range"},
		"broker ports over 2^63":  {more("broker_ports: {start: 1, count: 9223372036854775807}"), "virtual_clusters[0].broker_ports.start", "out of range"},
		"broker ports on listen":  {more("broker_ports: {start: 9090}"), "virtual_clusters[0].broker_ports", "port 9092 is taken"},
		"admin on a broker port":  {small + "admin: {listen: \"127.0.0.1:9095\"}\n", "admin.listen", "virtual_clusters[0].broker_ports"},
		"admin on all, on broker": {small + "admin: {listen: \"0.0.0.0:9095\", token: t}\n", "admin.listen", "port 9095 is taken"},
		"raised expiration":       {small + "replication: {raise_producer_id_expiration: true}\n", "replication.raise_producer_id_expiration", "not built yet"},
		"offsets translated":      {more("offsets: translated"), "virtual_clusters[0].offsets", "not built yet; use preserved"},
		"offsets":                 {more("offsets: kept"), "virtual_clusters[0].offsets", "one of preserved, translated"},
		"include nothing":         {more("topics: {include: []}"), "virtual_clusters[0].topics.include", "nothing"},
		"topic pattern":           {more(`topics: {include: ["a", "("]}`), "virtual_clusters[0].topics.include[1]", "missing closing"},
		"pattern with a brace":    {more(`topics: {exclude: ["a)(b"]}`), "virtual_clusters[0].topics.exclude[0]", "unexpected )"},
		"group pattern":           {more(`groups: {include: ["*"]}`), "virtual_clusters[0].groups.include[0]", "RE2"},
		"naming word":             {more("topics: {naming: prefix}"), "virtual_clusters[0].topics.naming", "write identity"},
		"naming unknown":          {more("topics: {naming: {prefx: a}}"), "virtual_clusters[0].topics.naming.prefx", `did you mean "prefix"`},
		"naming empty":            {more("topics: {naming: {}}"), "virtual_clusters[0].topics.naming", "neither"},
		"naming both":             {more("topics: {naming: {prefix: a., rename: {a: b}}}"), "virtual_clusters[0].topics.naming", "one of them"},
		"prefix":                  {more(`topics: {naming: {prefix: "{target}."}}`), "virtual_clusters[0].topics.naming.prefix", "cannot begin"},
		"rename two to one":       {more("topics: {naming: {rename: {a: c, b: c}}}"), "virtual_clusters[0].topics.naming.rename.b", "topic a is renamed to c too"},
		"rename to no name":       {more(`topics: {naming: {rename: {a: "b c"}}}`), "virtual_clusters[0].topics.naming.rename.a", "cannot be a topic name"},
		"listener cert, no key":   {more("tls: {cert: x}"), "virtual_clusters[0].tls.key", "without a key"},
		"listener ca alone":       {more("tls: {ca: x}"), "virtual_clusters[0].tls.cert", "certificate of our own"},
		"client auth without ca":  {more("tls: {cert: x, key: y, client_auth: required}"), "virtual_clusters[0].tls.ca", "needs a ca"},
		"ca without client auth":  {more("tls: {cert: x, key: y, ca: z}"), "virtual_clusters[0].tls.client_auth", "no client is asked"},
		"client auth":             {more("tls: {cert: x, key: y, client_auth: require}"), "virtual_clusters[0].tls.client_auth", "did you mean required"},
		"lost range":              {small + "replication: {on_lost_range: ignore}\n", "replication.on_lost_range", "halt, skip"},
		"checkpoint interval":     {small + "replication: {checkpoint_interval: -1s}\n", "replication.checkpoint_interval", "above zero"},
		"replication factor":      {small + "replication: {internal_replication_factor: -1}\n", "replication.internal_replication_factor", "min(3, brokers)"},
		"drain above pause":       {small + "cutover: {drain_timeout: 40s}\n", "cutover.drain_timeout", "not below max_pause"},
		"open admin, no token":    {small + "admin: {listen: \"0.0.0.0:8080\"}\n", "admin.token", "without a token"},
		"open admin by name":      {small + "admin: {listen: \"kafka.example.com:8080\"}\n", "admin.token", "without a token"},
		"admin listen":            {small + "admin: {listen: here}\n", "admin.listen", "host:port"},
		"log level":               {small + "log: {level: inf}\n", "log.level", "did you mean info"},
		"log format":              {small + "log: {format: text}\n", "log.format", "json, console"},
		"limit not positive":      {small + "limits: {frame_bytes: -1}\n", "limits.frame_bytes", "above zero"},
		"frame above int32":       {small + "limits: {frame_bytes: 2147483648}\n", "limits.frame_bytes", "int32"},
		"frame above connection":  {small + "limits: {connection_bytes: 1}\n", "limits.connection_bytes", "lower frame_bytes"},
		"connection above total":  {small + "limits: {total_bytes: 1}\n", "limits.total_bytes", "lower connection_bytes"},
		"instance":                {small + "instance: a b\n", "instance", "printable"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { wantProblem(t, test.text, test.path, test.want) })
	}
}

func TestMistakesAcrossVirtualClustersAreNamed(t *testing.T) {
	second := func(name, active, standby, listen string) string {
		return small + fmt.Sprintf("  - {name: %s, active: %s, standby: %s, listen: %q}\n", name, active, standby, listen)
	}
	wantProblem(t, second("main", "green", "blue", "127.0.0.1:9200"), "virtual_clusters[1].name", "there already")
	wantProblem(t, second("other", "green", "blue", "127.0.0.1:9200"), "virtual_clusters[1].active", "main uses blue and green already")
	wantProblem(t, second("other", "green", "blue", "127.0.0.1:9100"), "virtual_clusters[1].listen", "port 9100 is taken by virtual_clusters[0].broker_ports")
	wantProblem(t, second("other", "green", "blue", "localhost:9090"), "virtual_clusters[1].broker_ports", "port 9092 is taken by virtual_clusters[0].listen")
}

func TestEveryMistakeIsReportedAtOnceInTheOrderOfTheFile(t *testing.T) {
	text := strings.NewReplacer("standby: green", "standby: grren", `["b1:9092"]`, `["b1"]`).Replace(small) + "log: {levl: info, format: xml}\ncutover: {max_pause: 3}\n"
	_, err := Parse([]byte(text))
	var all *Problems
	if !errors.As(err, &all) {
		t.Fatalf("%v", err)
	}
	want := []string{"clusters.blue.bootstrap[0]", "virtual_clusters[0].standby", "log.levl", "log.format", "cutover.max_pause"}
	var got []string
	line := 0
	for _, p := range all.List {
		got = append(got, p.Path)
		if p.Line < line {
			t.Errorf("line %d after line %d", p.Line, line)
		}
		line = p.Line
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %v\nwant %v\n%v", got, want, err)
	}
}

func TestWhatIsNoYAMLIsSaidOnce(t *testing.T) {
	for _, text := range []string{"", "# nothing", "a: [", "a: b: c", "[1, 2]", "x", small + "---\n" + small} {
		if _, problems := parse([]byte(text), closed()); problems.err() == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestGoodVariantsAreAccepted(t *testing.T) {
	for _, text := range []string{
		full,
		with(t, "listen: 127.0.0.1:9092", `listen: "[::1]:9092"`),
		with(t, "listen: 127.0.0.1:9092", "listen: 10.0.0.1:9092\n    topics: {naming: identity}"),
		with(t, "listen: 127.0.0.1:9092", "listen: 10.0.0.1:9092\n    topics: {naming: {rename: {a: b, b: a, c.d: c_d}}}"),
		with(t, "b1:9092", "127.0.0.1:19092") + "admin: {listen: \"localhost:8081\"}\n",
		small + "admin: {listen: \"10.0.0.1:9092\", token: t}\n", // another address, so the port is free
	} {
		mustParse(t, text)
	}
}

func TestAConfigBuiltInCodeIsJudgedToo(t *testing.T) {
	c := Default()
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "there is no cluster") {
		t.Errorf("%v", err)
	}
}
