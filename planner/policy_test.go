package planner

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDefaultPolicyIsValid(t *testing.T) {
	if err := DefaultPolicy().Validate(); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyNonsense says all that is wrong with a policy in one message.
func TestPolicyNonsense(t *testing.T) {
	nan := math.NaN()
	for name, p := range map[string]Policy{
		"zero":     {},
		"negative": {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1},
		"nan":      {nan, nan, 10 * time.Second, time.Minute, nan, nan, nan, 32, nan, time.Hour, 0, 64, 0, 0},
		"infinite": {math.Inf(1), math.Inf(1), math.MaxInt64, math.MaxInt64, math.Inf(1), math.Inf(1), math.Inf(1), math.MaxInt, math.Inf(1), math.MaxInt64, math.MaxInt, math.MaxInt, math.MaxUint64, math.MaxInt64},
		"reversed": {1, 1, time.Minute, time.Second, 0.5, 0.8, 0.9, 2, 1, 0, 9, 8, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			err := p.Validate()
			var bad *PolicyError
			if !errors.As(err, &bad) || len(bad.Problems) < 5 {
				t.Fatalf("error %v", err)
			}
			golden(t, "testdata/policy/"+name+".txt", err.Error()+"\n")
			if got := strings.Count(err.Error(), "\n"); got != len(bad.Problems) {
				t.Errorf("%d problems on %d lines", len(bad.Problems), got)
			}
		})
	}
}

// TestPolicyFields breaks one field at a time: exactly that is reported.
func TestPolicyFields(t *testing.T) {
	for name, set := range map[string]func(*Policy){
		"target_bytes":   func(p *Policy) { p.TargetBytes = 0 },
		"target_records": func(p *Policy) { p.TargetRecords = math.NaN() },
		"short":          func(p *Policy) { p.Short = 999 * time.Millisecond },
		"long":           func(p *Policy) { p.Long = p.Short - 1 },
		"burst":          func(p *Policy) { p.Burst = 1001 },
		"sustained":      func(p *Policy) { p.Sustained = p.Burst + 0.01 },
		"fill":           func(p *Policy) { p.Fill = p.Sustained },
		"max_ways":       func(p *Policy) { p.MaxWays = 1 },
		"merge_below":    func(p *Policy) { p.MergeBelow = p.Sustained },
		"cool_down":      func(p *Policy) { p.CoolDown = p.Long - 1 },
		"floor":          func(p *Policy) { p.Floor = p.Cap + 1 },
		"cap":            func(p *Policy) { p.Cap = 0 },
		"roll_bytes":     func(p *Policy) { p.RollBytes = 1<<20 - 1 },
		"roll_age":       func(p *Policy) { p.RollAge = p.Long - 1 },
	} {
		p := DefaultPolicy()
		set(&p)
		err := p.Validate()
		var bad *PolicyError
		if !errors.As(err, &bad) || len(bad.Problems) != 1 || !strings.HasPrefix(bad.Problems[0].Error(), name+" is ") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	fields := reflect.TypeFor[Policy]()
	for i := range fields.NumField() {
		name := fields.Field(i).Tag.Get("json")
		data, err := os.ReadFile("policy_test.go")
		if err != nil || !strings.Contains(string(data), `"`+name+`": `) {
			t.Errorf("no test breaks %s, error %v", name, err)
		}
	}
}

// TestPolicyEdges allows what is just within its limits.
func TestPolicyEdges(t *testing.T) {
	for name, set := range map[string]func(*Policy){
		"equal windows": func(p *Policy) { p.Short, p.Long, p.CoolDown = time.Second, time.Second, time.Second },
		"one threshold": func(p *Policy) { p.Sustained = p.Burst },
		"no merges":     func(p *Policy) { p.MergeBelow = 0 },
		"no rolls":      func(p *Policy) { p.RollBytes, p.RollAge = 0, 0 },
		"always one":    func(p *Policy) { p.Floor, p.Cap = 1, 1 },
		"fixed":         func(p *Policy) { p.Floor, p.Cap = 4096, 4096 },
	} {
		p := DefaultPolicy()
		set(&p)
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestValidPoliciesArePlanned says that no valid policy leads to nonsense.
func TestValidPoliciesArePlanned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(p); err != nil {
			t.Fatal(err)
		}
	})
}

func TestShow(t *testing.T) {
	p := DefaultPolicy()
	for want, r := range map[string]Rate{
		"0 B/s":                           {},
		"512 B/s":                         {Bytes: 512},
		"1.0 KiB/s":                       {Bytes: 1024},
		"8.0 MiB/s":                       {Records: 50_000, Bytes: 8 << 20},
		"12 MiB/s":                        {Bytes: 12 << 20},
		"1.5 GiB/s":                       {Bytes: 1.5 * (1 << 30)},
		"909 TiB/s":                       {Bytes: math.MaxFloat64},
		"0.3 records/s":                   {Records: 0.3},
		"9.9 records/s":                   {Records: 9.9},
		"50,001 records/s":                {Records: 50_001, Bytes: 8 << 20},
		"1,500,000 records/s":             {Records: 1.5e6},
		"1,000,000,000,000,000 records/s": {Records: math.MaxFloat64},
	} {
		if got := p.show(r); got != want {
			t.Errorf("%v: got %q, want %q", r, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": -time.Hour, "400ms": 400 * time.Millisecond, "1s": 1010 * time.Millisecond, "1.5s": 1499 * time.Millisecond, "10s": 10 * time.Second, "13s": 12600 * time.Millisecond,
		"2m": 2 * time.Minute, "1m30s": 90 * time.Second, "1h": time.Hour, "1h1m": 61 * time.Minute, "1h0m1s": time.Hour + time.Second, "10h": 10 * time.Hour, "720h": 720 * time.Hour,
		"1h10m": 70 * time.Minute,
	} {
		if got := age(d); got != want {
			t.Errorf("%d: got %q, want %q", d, got, want)
		}
	}
}
