#!/bin/sh
# Prints the path of a usable weed (SeaweedFS), and nothing else, on stdout.
#
# In this order: a weed on PATH that is new enough; the one built earlier into
# the cache folder; a new build of the version that go.mod here pins. Several
# runs may go on at once: one builds, the others wait for it.
set -eu

min_major=4 min_minor=53

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
pinned=$(sed -n 's|.*github.com/seaweedfs/seaweedfs \(v[^ ]*\).*|\1|p' "$here/go.mod" | head -n 1)
[ -n "$pinned" ] || { echo "no version of SeaweedFS in $here/go.mod" >&2; exit 1; }
cache=${SPILLWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/spillway}
dir=$cache/weed-$pinned
lock=$dir/lock

# usable tells whether $1 runs and is new enough. It says "version 30GB 4.53 ...".
usable() {
	v=$("$1" version 2>/dev/null | sed -n 's/^version [^ ]* \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
	[ -n "$v" ] || return 1
	[ "${v%%.*}" -gt $min_major ] && return 0
	[ "${v%%.*}" -eq $min_major ] && [ "${v#*.}" -ge $min_minor ]
}

# acquire takes the lock, or waits for whoever has it; it fails once the binary
# is there. A lock whose holder is gone is taken over. Two holders at once do no
# harm, as the finished file is put in place by a rename: they only waste time.
acquire() {
	said='' waited=0
	until mkdir "$lock" 2>/dev/null; do
		holder=$(cat "$lock/pid" 2>/dev/null || :)
		if [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null; then
			rm -rf "$lock"
			continue
		fi
		if [ -z "$holder" ] && [ $waited -ge 10 ]; then
			rm -rf "$lock" # its holder died before it could say who it was
			continue
		fi
		[ -n "$said" ] || echo "waiting for another build of weed (process ${holder:-unknown}, lock $lock)" >&2
		said=1 waited=$((waited + 1))
		sleep 1
	done
	echo $$ >"$lock/pid"
	# shellcheck disable=SC2064 # the names of now are meant
	trap "rm -rf '$lock' '$dir/weed.$$'" EXIT
	trap 'exit 1' HUP INT TERM
	[ ! -x "$dir/weed" ]
}

build() {
	echo "building weed $pinned: this takes about 8 minutes on two cores, once; it is kept in $dir" >&2
	# No -trimpath or other flags that change how packages are compiled, so that
	# a build cache that is already warm is of use.
	(cd "$here" && GOWORK=off go build -ldflags '-s -w' -o "$dir/weed.$$" github.com/seaweedfs/seaweedfs/weed) >&2
	usable "$dir/weed.$$" || { echo "the weed that was built does not run" >&2; exit 1; }
	mv -f "$dir/weed.$$" "$dir/weed"
}

if found=$(command -v weed) && usable "$found"; then
	echo "$found"
	exit 0
fi
if [ ! -x "$dir/weed" ]; then
	mkdir -p "$dir"
	if acquire; then build; fi
fi
echo "$dir/weed"
