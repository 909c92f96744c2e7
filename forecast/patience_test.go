package forecast_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/forecasttest"
)

// A model that does not answer is stopped, with an error in words; one that is told to go on tells how far it is, and says the same as one that does not tell.
func TestModelThatTakesLong(t *testing.T) {
	onnxtest.Library(t)
	raw, err := forecasttest.Untrained(256, 96, 60, time.Minute, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := forecast.Series{Start: time.Unix(1_800_000_000, 0), Step: time.Minute}
	for i := range 3000 {
		s.Values = append(s.Values, 1000*(1.2+math.Sin(float64(i)/1440*2*math.Pi))+float64(i*7919%101))
	}
	open := func(o forecast.ONNXOptions) *forecast.ONNXModel {
		m, err := forecast.NewONNX("model.onnx", raw, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	for range 2 {
		_, err = open(forecast.ONNXOptions{Limit: time.Millisecond}).Forecast(s, 60)
		if !errors.Is(err, forecast.ErrTooSlow) || !strings.Contains(err.Error(), "had not answered after 1ms, and was stopped: train or export a smaller model") {
			t.Errorf("it says %v", err)
		}
	}

	// One that is asked at many moments is waited for once.
	once := open(forecast.ONNXOptions{Limit: 100 * time.Microsecond, Once: true})
	_, first := once.Forecast(s, 60)
	began := time.Now()
	for range 1000 {
		if _, err := once.Forecast(s, 60); !errors.Is(err, forecast.ErrTooSlow) || !strings.HasSuffix(err.Error(), "It was not asked again") {
			t.Fatalf("it says %v, and then %v", first, err)
		}
	}
	t.Logf("asked a thousand times more: %v", time.Since(began))

	want, err := open(forecast.ONNXOptions{}).Forecast(s, 60)
	if err != nil {
		t.Fatal(err)
	}
	var m *forecast.ONNXModel
	last, total := -1, 0
	m = open(forecast.ONNXOptions{Progress: func(done, of int) {
		if done < last || total > 0 && of != total {
			t.Errorf("after %d of %d it tells %d of %d", last, total, done, of)
		}
		last, total = done, of
	}})
	got, err := m.Forecast(s, 60)
	if err != nil || !reflect.DeepEqual(got, want) || last != total || total < 16 {
		t.Errorf("%v; the same %v; it told %d of %d", err, reflect.DeepEqual(got, want), last, total)
	}

	// One that is taken in later says the same, and may be closed before it is.
	later := open(forecast.ONNXOptions{Later: true})
	if got, err := later.Forecast(s, 60); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("taken in later: %v; the same %v", err, reflect.DeepEqual(got, want))
	}
	later = open(forecast.ONNXOptions{Later: true})
	if err := later.Close(); err != nil {
		t.Error(err)
	}
	if _, err := later.Forecast(s, 60); err == nil {
		t.Error("it forecasts after it was closed")
	}

	// One that is closed in the midst of it has no forecast.
	m = open(forecast.ONNXOptions{Progress: func(done, _ int) {
		if done == 5 {
			go func() { _ = m.Close() }()
			time.Sleep(20 * time.Millisecond)
		}
		last = done
	}})
	if _, err := m.Forecast(s, 60); !errors.Is(err, forecast.ErrClosed) || !strings.Contains(err.Error(), "held to the past: it is closed") || last >= total {
		t.Errorf("closed in the midst of it: %v, at %d of %d", err, last, total)
	}
	ctx, cancel := context.WithCancel(t.Context())
	last = 0
	m = open(forecast.ONNXOptions{Progress: func(done, _ int) {
		if done == 5 {
			cancel()
			time.Sleep(20 * time.Millisecond)
		}
		last = done
	}})
	done := m.CloseOn(ctx)
	if _, err := m.Forecast(s, 60); !errors.Is(err, forecast.ErrClosed) || last >= total {
		t.Errorf("with a context that ends in the midst of it: %v, at %d of %d", err, last, total)
	}
	done()
}
