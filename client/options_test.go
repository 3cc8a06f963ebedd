package client

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestOptionsReportAllProblemsAtOnce(t *testing.T) {
	_, err := NewProducer(nil, Options{
		Group:       "No/Group",
		Linger:      time.Hour,
		BatchBytes:  1 << 20,
		MaxBuffered: 1,
		Compression: "snappy",
		Ack:         7,
		RetryBudget: -1,
		AckTimeout:  1,
	})
	bad, ok := errors.AsType[*OptionsError](err)
	if !ok || len(bad.Problems) != 8 {
		t.Fatalf("error: %v", err)
	}
	for _, field := range []string{"Group", "Linger", "BatchBytes", "MaxBuffered", "Compression", "Ack: level 7", "RetryBudget", "AckTimeout"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("nothing about %s in: %v", field, err)
		}
	}
}

func TestDefaultsAreValid(t *testing.T) {
	if err := (Options{}).withDefaults().validate(); err != nil {
		t.Error(err)
	}
	if err := (Options{Linger: -1}).withDefaults().validate(); err != nil {
		t.Errorf("no linger: %v", err)
	}
	if _, err := NewProducer(nil, Options{}); !isType[*OptionsError](err) {
		t.Errorf("no connection: %v", err)
	}
}
