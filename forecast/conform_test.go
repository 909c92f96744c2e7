package forecast_test

import (
	"math"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast"
	"github.com/kale-sched/kale/forecast/forecasttest"
)

// wave is a history of n bins of a second whose season is two minutes.
func wave(n int) forecast.Series {
	s := forecast.Series{Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Step: time.Second}
	for i := range n {
		s.Values = append(s.Values, 1000+600*math.Sin(2*math.Pi*float64(i)/120)+50*math.Sin(float64(i)))
	}
	return s
}

func TestSeasonalConforms(t *testing.T) {
	forecasttest.Conform(t, forecast.NewSeasonal([]time.Duration{2 * time.Minute}), wave(360), 20)
}

func TestNaiveConforms(t *testing.T) {
	forecasttest.Conform(t, forecast.NewNaive(2*time.Minute), wave(360), 20)
}

func TestWindowAndEnsembleConform(t *testing.T) {
	s := wave(600)
	for _, kind := range []string{forecast.NLinear, forecast.DLinear, forecast.SparseTSF} {
		w, err := forecast.TrainWindow(s, forecast.WindowOptions{Kind: kind, Horizon: 20, Season: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(kind, func(t *testing.T) { forecasttest.Conform(t, w, s, 20) })
		t.Run("ensemble with "+kind, func(t *testing.T) {
			forecasttest.Conform(t, forecast.NewEnsemble(forecast.NewSeasonal([]time.Duration{2 * time.Minute}), w), s, 20)
		})
	}
}

func TestSeasonalEnsembleConforms(t *testing.T) {
	forecasttest.Conform(t, forecast.NewSeasonalEnsemble([]time.Duration{2 * time.Minute}), wave(720), 20)
}

func trainWindowModel(s forecast.Series, kind string, seasons []time.Duration) func() ([]byte, forecast.TrainReport, error) {
	return func() ([]byte, forecast.TrainReport, error) {
		return forecast.TrainWindowModel(s, kind, forecast.LinearOptions{Horizon: 20, Seasons: seasons}.Quick())
	}
}

func TestONNXModelConforms(t *testing.T) {
	onnxtest.Library(t)
	s, seasons := wave(600), []time.Duration{2 * time.Minute}
	for name, train := range map[string]func() ([]byte, forecast.TrainReport, error){
		"linear": func() ([]byte, forecast.TrainReport, error) {
			return forecast.TrainLinear(s, forecast.LinearOptions{Horizon: 20, Seasons: seasons}.Quick())
		},
		"fedformer": func() ([]byte, forecast.TrainReport, error) {
			return forecast.TrainFEDformer(t.Context(), s, forecast.FEDformerOptions{Horizon: 20, Seasons: seasons, Width: 8, Epochs: 1}.Quick())
		},
		"nlinear":   trainWindowModel(s, forecast.NLinear, seasons),
		"dlinear":   trainWindowModel(s, forecast.DLinear, seasons),
		"sparsetsf": trainWindowModel(s, forecast.SparseTSF, seasons),
	} {
		t.Run(name, func(t *testing.T) {
			file, _, err := train()
			if err != nil {
				t.Fatal(err)
			}
			m, err := forecast.NewONNX("model.onnx", file, forecast.ONNXOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}()
			forecasttest.Conform(t, m, s, 20)
		})
	}
}
