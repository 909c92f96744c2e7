package core

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/forecast"
)

// TryForecast says, as diagnostics of the job file, that its forecast model, against which CheckForecast has nothing, gives no forecast of plain traffic; nothing where ONNX Runtime is not there.
func TryForecast(ctx context.Context, j *job.Job) hcl.Diagnostics {
	path := j.Forecast.ModelFile()
	if path == "" {
		return nil
	}
	m, err := forecast.OpenONNX(path, forecast.ONNXOptions{Threads: 1})
	if errors.Is(err, onnx.ErrNoLibrary) || errors.Is(err, onnx.ErrNoCgo) {
		return nil
	}
	if err == nil {
		defer m.CloseOn(ctx)()
		err = m.Try()
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return hcl.Diagnostics{j.ErrorAt("forecast.model", "The forecast model gives no forecast", fmt.Sprintf("%s, run once on plain traffic: %v. Forecasts would be made by %s. Train one with kale forecast train, or set model to %[3]q.", path, err, job.ForecastSeasonal))}
}
