#!/bin/sh
# Prints the path of golangci-lint at the version that go.mod here pins, building
# it into the cache folder first if it is not there.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
pinned=$(sed -n 's|.*github.com/golangci/golangci-lint/v2 \(v[^ ]*\).*|\1|p' "$here/go.mod" | head -n 1)
[ -n "$pinned" ] || { echo "no version of golangci-lint in $here/go.mod" >&2; exit 1; }
# It reads Go code with the library of the Go that built it.
dir=${SPILLWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spillway}/golangci-lint-$pinned-$(cd "$here" && go env GOVERSION)

if [ ! -x "$dir/golangci-lint" ]; then
	echo "building golangci-lint $pinned: this takes 3 to 5 minutes on two cores, once; it is kept in $dir" >&2
	mkdir -p "$dir"
	trap 'rm -f "$dir/new.$$"' EXIT
	(cd "$here" && GOWORK=off go build -ldflags '-s -w' -o "$dir/new.$$" github.com/golangci/golangci-lint/v2/cmd/golangci-lint) >&2
	mv -f "$dir/new.$$" "$dir/golangci-lint"
fi
echo "$dir/golangci-lint"
