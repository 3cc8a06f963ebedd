package devstack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// PinnedWeed is the version of SeaweedFS that infra/seaweedfs builds.
const PinnedWeed = "v0.0.0-20261109003541-7506e5f91cd6"

// The oldest weed that will do.
const minWeedMajor, minWeedMinor = 4, 53

// WeedEnv names the weed binary to use. It is preferred to any other.
const WeedEnv = "SPILLWAY_WEED"

// WeedNotFoundError tells that there is no usable weed binary.
type WeedNotFoundError struct{ Tried []string }

func (e *WeedNotFoundError) Error() string {
	return fmt.Sprintf("no weed of at least %d.%d found: %s; run `make weed`, which builds it once",
		minWeedMajor, minWeedMinor, strings.Join(e.Tried, "; "))
}

// weedBinary is a weed and what it says its version is.
type weedBinary struct{ path, version string }

// findWeed looks for a usable weed: the path given or, with none, the one named
// by [WeedEnv]; and with neither, PATH and then the cache of infra/seaweedfs. A
// binary that was asked for by name and will not do is not silently replaced.
func findWeed(ctx context.Context, path string) (weedBinary, error) {
	if path == "" {
		path = os.Getenv(WeedEnv)
	}
	candidates := []string{path}
	if path == "" {
		candidates = []string{"weed", cachedWeed()}
	}
	var tried []string
	for _, c := range candidates {
		bin, err := probeWeed(ctx, c)
		if err == nil {
			return bin, nil
		}
		tried = append(tried, err.Error())
	}
	return weedBinary{}, &WeedNotFoundError{Tried: tried}
}

// cachedWeed is where infra/seaweedfs/build.sh leaves what it builds.
func cachedWeed() string {
	cache := os.Getenv("SPILLWAY_CACHE")
	if cache == "" {
		base := os.Getenv("XDG_CACHE_HOME")
		if base == "" {
			base = filepath.Join(os.Getenv("HOME"), ".cache")
		}
		cache = filepath.Join(base, "spillway")
	}
	return filepath.Join(cache, "weed-"+PinnedWeed, "weed")
}

// probeWeed finds out whether the binary runs and is new enough.
func probeWeed(ctx context.Context, name string) (weedBinary, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return weedBinary{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return weedBinary{}, err
	}
	out, err := exec.CommandContext(ctx, path, "version").Output() //nolint:gosec // running what the caller names is the purpose
	if err != nil {
		return weedBinary{}, fmt.Errorf("%s version: %w", path, err)
	}
	version, ok := parseWeedVersion(string(out))
	if !ok {
		return weedBinary{}, fmt.Errorf("%s is older than %d.%d, or no weed: it says %.60q", path, minWeedMajor, minWeedMinor, out)
	}
	return weedBinary{path, version}, nil
}

// Example: "version 30GB 4.53  linux amd64".
var weedVersion = regexp.MustCompile(`(?m)^version \S+ ((\d{1,6})\.(\d{1,6}))\b`)

// parseWeedVersion reads what `weed version` prints and tells whether it is new
// enough.
func parseWeedVersion(out string) (version string, ok bool) {
	m := weedVersion.FindStringSubmatch(out)
	if m == nil {
		return "", false
	}
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	return m[1], major > minWeedMajor || major == minWeedMajor && minor >= minWeedMinor
}
