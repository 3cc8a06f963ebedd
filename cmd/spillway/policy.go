package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/planner"
)

// policySetting is a key of a policy file, and SPILLWAY_POLICY_<KEY> in the
// environment.
type policySetting struct {
	key   string
	value func(planner.Policy) any // as programs get it
	get   func(planner.Policy) string
	set   func(*planner.Policy, string) error
}

func bytesSetting(key string, at func(*planner.Policy) *float64) policySetting {
	return policySetting{
		key,
		func(p planner.Policy) any { return *at(&p) },
		func(p planner.Policy) string { return exactBytes(uint64(*at(&p))) },
		func(p *planner.Policy, v string) (err error) { *at(p), err = parseRate(v); return err },
	}
}

func floatSetting(key string, at func(*planner.Policy) *float64) policySetting {
	return policySetting{
		key,
		func(p planner.Policy) any { return *at(&p) },
		func(p planner.Policy) string { return strconv.FormatFloat(*at(&p), 'f', -1, 64) },
		func(p *planner.Policy, v string) (err error) {
			if *at(p), err = strconv.ParseFloat(v, 64); err != nil || math.IsNaN(*at(p)) {
				return errors.New("want a number, such as 0.8")
			}
			return nil
		},
	}
}

func intSetting(key string, at func(*planner.Policy) *int) policySetting {
	return policySetting{
		key,
		func(p planner.Policy) any { return *at(&p) },
		func(p planner.Policy) string { return strconv.Itoa(*at(&p)) },
		func(p *planner.Policy, v string) (err error) {
			if *at(p), err = strconv.Atoi(v); err != nil {
				return errors.New("want a whole number")
			}
			return nil
		},
	}
}

func durationSetting(key string, at func(*planner.Policy) *time.Duration) policySetting {
	return policySetting{
		key,
		func(p planner.Policy) any { return at(&p).String() },
		func(p planner.Policy) string { return at(&p).String() },
		func(p *planner.Policy, v string) (err error) {
			if *at(p), err = time.ParseDuration(v); err != nil {
				return errors.New("want a time with its unit, such as 10s or 2m")
			}
			return nil
		},
	}
}

var policySettings = []policySetting{
	bytesSetting("target_bytes", func(p *planner.Policy) *float64 { return &p.TargetBytes }),
	floatSetting("target_records", func(p *planner.Policy) *float64 { return &p.TargetRecords }),
	durationSetting("short", func(p *planner.Policy) *time.Duration { return &p.Short }),
	durationSetting("long", func(p *planner.Policy) *time.Duration { return &p.Long }),
	floatSetting("burst", func(p *planner.Policy) *float64 { return &p.Burst }),
	floatSetting("sustained", func(p *planner.Policy) *float64 { return &p.Sustained }),
	floatSetting("fill", func(p *planner.Policy) *float64 { return &p.Fill }),
	intSetting("max_ways", func(p *planner.Policy) *int { return &p.MaxWays }),
	floatSetting("merge_below", func(p *planner.Policy) *float64 { return &p.MergeBelow }),
	durationSetting("cool_down", func(p *planner.Policy) *time.Duration { return &p.CoolDown }),
	intSetting("floor", func(p *planner.Policy) *int { return &p.Floor }),
	intSetting("cap", func(p *planner.Policy) *int { return &p.Cap }),
	{
		"roll_bytes",
		func(p planner.Policy) any { return p.RollBytes },
		func(p planner.Policy) string { return exactBytes(p.RollBytes) },
		func(p *planner.Policy, v string) (err error) {
			if p.RollBytes, err = humanize.ParseBytes(v); err != nil {
				return errors.New("want a size, such as 1GiB")
			}
			return nil
		},
	},
	durationSetting("roll_age", func(p *planner.Policy) *time.Duration { return &p.RollAge }),
}

// exactBytes says a size in the largest unit of which it is a multiple.
func exactBytes(n uint64) string {
	units := []string{"", "KiB", "MiB", "GiB"}
	i := 0
	for ; i < len(units)-1 && n > 0 && n%1024 == 0; i++ {
		n /= 1024
	}
	return strconv.FormatUint(n, 10) + units[i]
}

// parseRate reads bytes per second: "8MiB", "200MB/s", "1000".
func parseRate(v string) (float64, error) {
	n, err := humanize.ParseBytes(strings.TrimSuffix(strings.TrimSpace(v), "/s"))
	if err != nil {
		return 0, errors.New("want bytes per second, such as 8MiB or 200MB/s")
	}
	return float64(n), nil
}
