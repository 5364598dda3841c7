#!/usr/bin/env bash
# Installs the tools that the compatibility tests use and that a Debian machine
# lacks. Each is installed once per machine, outside the checkout:
#   kcat, python3-kafka, strace        Debian packages
#   minio, versitygw                   go install, real S3 servers
#   Apache Kafka's broker and tools    Maven, into ~/.cache/strandline
set -euo pipefail

say() { echo "tools: $*"; }
kafka_version=4.4.0
minio_version=v0.0.0-20260212201848-7aac2a2c5b7c
versitygw_version=v1.8.0
cache="${XDG_CACHE_HOME:-$HOME/.cache}/strandline"

packages=()
command -v kcat >/dev/null || packages+=(kcat)
command -v strace >/dev/null || packages+=(strace)
command -v gcc >/dev/null || packages+=(gcc libc6-dev)
command -v java >/dev/null || packages+=(openjdk-17-jre-headless)
command -v mvn >/dev/null || packages+=(maven)
[ -d /usr/lib/python3/dist-packages/kafka ] || packages+=(python3-kafka)
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
say "all there"
