package topic

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// EndpointError tells that a text is no S3 endpoint. It does not repeat the text,
// in which there may be a password.
type EndpointError struct{ Reason string }

func (e *EndpointError) Error() string { return "endpoint: " + e.Reason }

// maxEndpoint is more than the longest name of a host takes.
const maxEndpoint = 300

// ParseEndpoint reads the URL of an S3 endpoint, and returns it as definitions keep
// it: endpoints that are the same have the same text. Nothing is an endpoint too,
// the one of the settings. The error is an [*EndpointError].
func ParseEndpoint(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	switch {
	case len(s) > maxEndpoint:
		return "", &EndpointError{"it is too long"}
	case err != nil:
		return "", &EndpointError{"it is no URL"}
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", &EndpointError{`want "http://host:port" or "https://host"`}
	case u.User != nil:
		return "", &EndpointError{"user and password do not belong into the URL; give keys in the settings"}
	case u.Path != "" && u.Path != "/" || strings.ContainsAny(s, "?#"):
		return "", &EndpointError{"want a host and a port, and nothing behind them"}
	}
	host, err := canonicalHost(u)
	if err != nil {
		return "", err
	}
	return u.Scheme + "://" + host, nil
}

const hostChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

// canonicalHost is the host in small letters, with the port unless it is the
// scheme's own.
func canonicalHost(u *url.URL) (string, error) {
	host := u.Hostname()
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && ip.Zone() != "":
		return "", &EndpointError{"an address with a zone means something on one machine only"}
	case err == nil && ip.Is6():
		host = "[" + ip.String() + "]"
	case err == nil:
		host = ip.String()
	case host == "" || strings.Trim(host, hostChars) != "":
		return "", &EndpointError{"the host's name has characters that names of hosts do not have"}
	default:
		host = strings.ToLower(host)
	}
	if u.Port() == "" {
		return host, nil
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	switch {
	case err != nil || port == 0:
		return "", &EndpointError{"the port is not one from 1 to 65535"}
	case u.Scheme == "http" && port == 80, u.Scheme == "https" && port == 443:
		return host, nil
	}
	return host + ":" + strconv.FormatUint(port, 10), nil
}

// ServedBy says whether the topic's buckets are at an endpoint, as the settings of
// a worker or a reader name it. A topic that names none takes what they have.
func (d Definition) ServedBy(endpoint string) bool {
	if d.Endpoint == "" {
		return true
	}
	is, err := ParseEndpoint(endpoint)
	return err == nil && is == d.Endpoint
}
