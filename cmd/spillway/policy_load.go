package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

const (
	// policyTopics is the key below which topics have settings of their own.
	policyTopics = "topics"
	policyEnv    = "SPILLWAY_POLICY"
	// maxPolicyFile is far more than a policy for every topic takes.
	maxPolicyFile = 16 << 20
)

// loadPolicy reads a policy file, "" for none: the defaults, then the file, then
// the environment. Everything that is wrong comes in one message.
func loadPolicy(file string) (planner.Policies, error) {
	v, err := readPolicy(file)
	if err != nil {
		return planner.Policies{}, &functions.ConfigError{Err: fmt.Errorf("policy file %s: %w", file, err)}
	}
	values := map[string]any{}
	for key, value := range v.AllSettings() {
		if key != policyTopics {
			values[key] = value
		}
	}
	base, bad := applyPolicy(planner.DefaultPolicy(), values)
	topics, problems := topicPolicies(v.Get(policyTopics), base, bad)
	bad = append(append(unknownEnv(), bad...), problems...)
	if len(bad) > 0 {
		name := "the policy"
		if file != "" {
			name = "policy file " + file
		}
		return planner.Policies{}, &functions.ConfigError{Err: fmt.Errorf("%s makes no sense:\n%w", name, errors.Join(bad...))}
	}
	return planner.Policies{Default: base, Topics: topics}, nil
}

// readPolicy reads the file over the defaults, and the environment over both.
func readPolicy(file string) (*viper.Viper, error) {
	v := viper.New()
	v.SetEnvPrefix(policyEnv)
	for _, s := range policySettings {
		v.SetDefault(s.key, s.get(planner.DefaultPolicy()))
		_ = v.BindEnv(s.key) // fails without a key only
	}
	if file == "" {
		return v, nil
	}
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no file")
	case info.Size() > maxPolicyFile:
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", info.Size(), maxPolicyFile)
	}
	v.SetConfigFile(file)
	v.SetConfigType("yaml")
	err = v.ReadInConfig()
	return v, err
}

// unknownEnv lists settings in the environment that there are not: they would
// silently not apply.
func unknownEnv() (bad []error) {
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		key, ok := strings.CutPrefix(name, policyEnv+"_")
		if ok && value != "" && !knownPolicy(strings.ToLower(key)) {
			bad = append(bad, fmt.Errorf("%s: there is no such setting", name))
		}
	}
	return bad
}

func knownPolicy(key string) bool {
	return slices.ContainsFunc(policySettings, func(s policySetting) bool { return s.key == key })
}

// applyPolicy sets values over a policy, and lists what is wrong with it then.
func applyPolicy(p planner.Policy, values map[string]any) (planner.Policy, []error) {
	var bad []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !knownPolicy(key) {
			bad = append(bad, fmt.Errorf("there is no setting %.60q", key))
		}
	}
	unread := map[string]bool{}
	for _, s := range policySettings {
		value, ok := values[s.key]
		if !ok {
			continue
		}
		before := p
		if err := s.set(&p, fmt.Sprint(value)); err != nil {
			p, unread[s.key] = before, true
			bad = append(bad, fmt.Errorf("%s is %.60q: %w", s.key, fmt.Sprint(value), err))
		}
	}
	var wrong *planner.PolicyError
	if !errors.As(p.Validate(), &wrong) {
		return p, bad
	}
	for _, problem := range wrong.Problems {
		// Of a setting that could not be read, that is all there is to say.
		if key, _, _ := strings.Cut(problem.Error(), " "); !unread[key] {
			bad = append(bad, problem)
		}
	}
	return p, bad
}

// topicPolicies reads the settings of single topics. What is wrong with all of them
// already is not said again of each.
func topicPolicies(section any, base planner.Policy, known []error) (map[string]planner.Policy, []error) {
	out := map[string]planner.Policy{}
	if section == nil {
		return out, nil
	}
	topics, ok := section.(map[string]any)
	if !ok {
		return out, []error{fmt.Errorf("%s: want topic names, each with settings below it", policyTopics)}
	}
	var bad []error
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		values, ok := topics[name].(map[string]any)
		if err := topic.CheckName(name); err != nil {
			bad = append(bad, fmt.Errorf("%s: %w", policyTopics, err))
			continue
		}
		if !ok {
			bad = append(bad, fmt.Errorf("%s.%s: want settings below it", policyTopics, name))
			continue
		}
		p, problems := applyPolicy(base, values)
		out[name] = p
		for _, problem := range problems {
			if !slices.ContainsFunc(known, func(k error) bool { return k.Error() == problem.Error() }) {
				bad = append(bad, fmt.Errorf("%s.%s: %w", policyTopics, name, problem))
			}
		}
	}
	return out, bad
}

// showPolicy prints policies as a file that loadPolicy reads: of topics, what is
// different.
func (a *app) showPolicy(p planner.Policies) error {
	if a.cfg.JSON {
		return a.json(policyValues(p))
	}
	for _, s := range policySettings {
		if err := a.printf("%s: %s\n", s.key, s.get(p.Default)); err != nil {
			return err
		}
	}
	if len(p.Topics) == 0 {
		return nil
	}
	text := policyTopics + ":\n"
	for _, name := range slices.Sorted(maps.Keys(p.Topics)) {
		own := ""
		for _, s := range policySettings {
			if v := s.get(p.Topics[name]); v != s.get(p.Default) {
				own += fmt.Sprintf("    %s: %s\n", s.key, v)
			}
		}
		if own != "" {
			text += fmt.Sprintf("  %q:\n%s", name, own)
		}
	}
	return a.printf("%s", text)
}

// policyValues is a policy for programs; topics have all their settings.
func policyValues(p planner.Policies) map[string]any {
	all := func(p planner.Policy) map[string]any {
		values := map[string]any{}
		for _, s := range policySettings {
			values[s.key] = s.value(p)
		}
		return values
	}
	out, topics := all(p.Default), map[string]any{}
	for name, own := range p.Topics {
		topics[name] = all(own)
	}
	out[policyTopics] = topics
	return out
}
