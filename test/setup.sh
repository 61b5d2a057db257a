#!/bin/sh
# Installs what the end-to-end tests need into test/.cache (never in git):
#
#   kafka-VERSION/       jars of the brokers and tools
#   clients-VERSION/     jars of the Java client, java/ its compiled test client
#   venv/                Python with confluent-kafka (librdkafka)
#
# Usage: test/setup.sh [KAFKA_VERSION ...]     default 4.3.1 and 2.8.2; each version given is installed beside the others.
# Safe to run again: what is there already is kept. Fails with the name of what is missing.
set -eu

java_client_version=4.3.1
confluent_version=2.16.1
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache="$here/.cache"

fail() {
	echo "setup: $1" >&2
	echo "setup: hint: $2" >&2
	exit 1
}

java_major() {
	javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'
}

# apt_install PACKAGE...: only as root on a system with apt-get.
apt_install() {
	[ "$(id -u)" = 0 ] || return 1
	command -v apt-get >/dev/null || return 1
	echo "setup: apt-get install $*"
	apt-get update -qq || true
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

need_programs() {
	major=$(command -v javac >/dev/null && java_major || echo 0)
	[ "${major:-0}" -ge 17 ] || apt_install openjdk-17-jdk-headless ||
		fail "a Java development kit of version 17 or newer is missing (javac)" "install openjdk-17-jdk-headless"
	command -v mvn >/dev/null || apt_install maven ||
		fail "Maven is missing (mvn)" "install maven"
	command -v python3 >/dev/null || apt_install python3 ||
		fail "Python 3 is missing (python3)" "install python3 and python3-venv"
	python3 -c 'import venv, ensurepip' 2>/dev/null || apt_install python3-venv ||
		fail "Python's venv module is missing" "install python3-venv"
	command -v go >/dev/null ||
		fail "Go is missing (go)" "install the version named in go.mod, from https://go.dev/dl"
}

# jars POM VERSION DIR: downloads the dependencies of POM into DIR, all or nothing.
jars() {
	[ -f "$3/.complete" ] && return 0
	echo "setup: downloading $(basename "$3")"
	work="$3.part"
	rm -rf "$work"
	mkdir -p "$work/jars"
	mvn -q -B -Dstyle.color=never -f "$here/poms/$1" -Dkafka.version="$2" dependency:copy-dependencies -DoutputDirectory="$work/jars" ||
		fail "Maven could not download Kafka $2" "check that Maven reaches its repository (settings.xml, proxy) and that the version exists"
	rm -f "$work"/jars/slf4j-log4j12-*.jar "$work"/jars/slf4j-reload4j-*.jar "$work"/jars/log4j-slf4j-impl-*.jar
	touch "$work/.complete"
	rm -rf "$3"
	mv "$work" "$3"
}

java_client() {
	out="$cache/java"
	stamp=$(cksum <"$here/clients/java/Client.java")
	[ -f "$out/.stamp" ] && [ "$(cat "$out/.stamp")" = "$stamp" ] && return 0
	echo "setup: compiling the Java test client"
	rm -rf "$out"
	mkdir -p "$out"
	javac -nowarn -d "$out" -cp "$cache/clients-$java_client_version/jars/*" "$here/clients/java/Client.java" ||
		fail "the Java test client does not compile" "see the messages of javac above"
	echo "$stamp" >"$out/.stamp"
}

python_client() {
	[ -f "$cache/venv/.complete-$confluent_version" ] && return 0
	echo "setup: installing confluent-kafka $confluent_version"
	rm -rf "$cache/venv"
	python3 -m venv "$cache/venv"
	"$cache/venv/bin/pip" install -q --disable-pip-version-check "confluent-kafka==$confluent_version" ||
		fail "pip could not install confluent-kafka $confluent_version" "check that pip reaches its index, or that a wheel for this Python exists"
	"$cache/venv/bin/python" -c 'import confluent_kafka' ||
		fail "confluent-kafka does not load" "remove test/.cache/venv and try again"
	touch "$cache/venv/.complete-$confluent_version"
}

[ $# -gt 0 ] || set -- 4.3.1 2.8.2
mkdir -p "$cache"
need_programs
for version in "$@"; do
	jars broker.xml "$version" "$cache/kafka-$version"
done
jars clients.xml "$java_client_version" "$cache/clients-$java_client_version"
java_client
python_client
echo "setup: ready (Kafka $*)"
