#!/bin/sh
# Runs every fuzz target of the main module for the time given, one by one.
#
#	infra/tools/fuzz.sh 20s
#
# A failing input is left in the package's testdata/fuzz, where `go test` tries it
# ever after; all targets run even if one fails.
set -eu

cd -- "$(dirname -- "$0")/../.."
time=${1:?"usage: $0 DURATION"}
failed=''
found=''
for file in $(grep -rl --include='*_test.go' '^func Fuzz[A-Z]' . | LC_ALL=C sort); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file"); do
		found=1
		dir=$(dirname "$file")
		echo "== $target in $dir"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" || failed="$failed $dir:$target"
	done
done
[ -n "$found" ] || { echo "no fuzz targets found" >&2; exit 1; }
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
