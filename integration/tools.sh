#!/usr/bin/env bash
# Installs the tools that the compatibility tests use and that a Debian machine
# lacks. Each is installed once per machine, outside the checkout:
#   kcat, python3-kafka, strace, node  Debian packages
#   minio, versitygw                   go install, real S3 servers
#   Apache Kafka's broker and tools    Maven, into ~/.cache/strandline
#   Kafka Streams, and tools of 2.8    Maven, into ~/.cache/strandline
#   Kafka clients of Python and Node   pip and npm, into ~/.cache/strandline
#   Prometheus and promtool            from Debian's package, unpacked there and
#                                      not installed: it would start a service
# Clients of Go are pinned by go.mod. What cannot be fetched is said and left
# out: the tests that need it skip, or fail where every tool is required.
set -euo pipefail

say() { echo "tools: $*"; }
kafka_version=4.4.0
kafka_2_version=2.8.2
minio_version=v0.0.0-20260212201848-7aac2a2c5b7c
versitygw_version=v1.8.0
python_clients="confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0 cramjam==2.14.0 python-snappy==0.7.3 lz4==4.4.5 zstandard==0.25.0"
node_clients="kafkajs@2.2.4 kafkajs-snappy@1.1.0 lz4js@0.2.0 zstd-codec@0.1.5"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/strandline"

packages=()
command -v kcat >/dev/null || packages+=(kcat)
command -v strace >/dev/null || packages+=(strace)
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
command -v javac >/dev/null || packages+=(openjdk-17-jdk-headless)
command -v mvn >/dev/null || packages+=(maven)
command -v node >/dev/null || packages+=(nodejs)
command -v npm >/dev/null || packages+=(npm)
for module in kafka:python3-kafka snappy:python3-snappy lz4:python3-lz4 xxhash:python3-xxhash zstandard:python3-zstandard venv:python3-venv ensurepip:python3-venv; do
  /usr/bin/python3 -c "import ${module%%:*}" 2>/dev/null || packages+=("${module##*:}")
done
if [ ${#packages[@]} -gt 0 ]; then
  say "apt-get install ${packages[*]}"
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -q
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -qy "${packages[@]}"
fi

gobin=$(go env GOBIN)
[ -n "$gobin" ] || gobin="$(go env GOPATH)/bin"
if [ ! -x "$gobin/minio" ]; then
  say "building MinIO $minio_version (some minutes, once)"
  (cd / && go install "github.com/minio/minio@$minio_version")
fi
if [ ! -x "$gobin/versitygw" ]; then
  say "building versitygw $versitygw_version (some minutes, once)"
  (cd / && go install "github.com/versity/versitygw/cmd/versitygw@$versitygw_version")
fi

libs="$cache/kafka-$kafka_version/libs"
if [ ! -e "$libs/.complete" ]; then
  say "fetching Apache Kafka $kafka_version"
  mkdir -p "$libs"
  work=$(mktemp -d)
  cat >"$work/pom.xml" <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>strandline</groupId><artifactId>kafka-tools</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$kafka_version</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$kafka_version</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.25.1</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.1</version></dependency>
  </dependencies>
</project>
XML
  cat >"$libs/log4j2.yaml" <<YAML
Configuration:
  Appenders: {Console: {name: ERR, target: SYSTEM_ERR, PatternLayout: {pattern: "%m%n"}}}
  Loggers: {Root: {level: warn, AppenderRef: {ref: ERR}}}
YAML
  mvn -B -q -f "$work/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$libs"
  touch "$libs/.complete"
  rm -rf "$work"
fi
# once NAME PINS FUNCTION: lets FUNCTION fill an empty folder, unless it was
# filled with the same pins before.
once() {
  local dir="$cache/$1"
  [ "$(cat "$dir/.complete" 2>/dev/null)" != "$2" ] || return 0
  say "fetching $1: $2"
  rm -rf "$dir"
  mkdir -p "$dir"
  if (cd "$dir" && $3); then
    echo "$2" >"$dir/.complete"
  else
    say "$1 could not be fetched"
  fi
}

python_venv() { /usr/bin/python3 -m venv . && bin/pip install -q --disable-pip-version-check $python_clients; }
node_modules() { npm install --no-audit --no-fund --loglevel=error --prefix . $node_clients; }
# maven_jars ARTIFACT VERSION: one of Apache Kafka's, with all that it needs.
maven_jars() {
  cat >pom.xml <<XML
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>strandline</groupId><artifactId>$1-and-more</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>$1</artifactId><version>$2</version></dependency>
  </dependencies>
</project>
XML
  mvn -B -q dependency:copy-dependencies -DoutputDirectory=.
}
kafka_streams() { maven_jars kafka-streams "$kafka_version"; }
kafka_2() { maven_jars kafka_2.13 "$kafka_2_version"; }
prometheus() { apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb && usr/bin/promtool --version; }

once python-clients "$python_clients" python_venv
once node-clients "$node_clients" node_modules
once kafka-streams "$kafka_version" kafka_streams
once kafka-2 "$kafka_2_version" kafka_2
once prometheus "Debian's" prometheus
say "all there"
