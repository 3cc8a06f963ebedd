#!/bin/sh
# Prints the folder that has the DuckDB which package-lock.json here pins, as a
# module of node, installing it into the cache folder first if it is not there.
# Several runs may go on at once: the first one that is ready is kept.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
pinned=$(sed -n 's|.*"@duckdb/node-api": "\([^"]*\)".*|\1|p' "$here/package.json" | head -n 1)
[ -n "$pinned" ] || { echo "no version of DuckDB in $here/package.json" >&2; exit 1; }
dir=${SPILLWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spillway}/duckdb-$pinned

for tool in node npm; do
	command -v $tool >/dev/null || {
		echo "DuckDB cannot be installed: there is no $tool on PATH. Install Node.js 18 or newer, which has it." >&2
		exit 1
	}
done
if ! cmp -s "$here/package-lock.json" "$dir/package-lock.json"; then
	echo "installing DuckDB $pinned (70 MB), once; it is kept in $dir" >&2
	new=$dir.$$
	trap 'rm -rf "$new"' EXIT
	trap 'exit 1' HUP INT TERM
	mkdir -p "$new"
	cp "$here/package.json" "$here/package-lock.json" "$new"
	# No script of a package is run: there is nothing to build.
	npm --prefix "$new" ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2
	rm -rf "$dir"
	# A folder that another run put there meanwhile has the same in it.
	mv -T "$new" "$dir" 2>/dev/null || [ -d "$dir/node_modules" ] || mv "$new" "$dir"
fi
echo "$dir"
