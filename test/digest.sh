#!/usr/bin/env bash
# digest.sh LOG: of the output of `go test -v`, what the tests that failed said, without the logs of what they ran.
set -euo pipefail

awk '
	function keep(length_max) { said = said substr($0, 1, length_max) "\n" }
	/^=== RUN/ { said = ""; more = 0 }
	/^ +[a-z_]+\.go:[0-9]+: / { more = /files of this test|printed last|: checker:/ ? 0 : 3 }
	/^ +(re-read|error|lost|duplicate|out of order|offset mismatch|rebalance|unknown|unanswered|commit went back): / { more = 1 }
	more > 0 { keep(300); more-- }
	/^--- FAIL/ { printf "%s\n%s", $0, said }
	/^panic:|^FAIL\t/ { print }
' "$1"
