package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kale-sched/kale/forecast"
)

// published is a data set of the table. The figures are the MSE of FEDformer-f, univariate, input 96: of ETTm2 from its paper (Zhou et al., ICML 2022,
// table 3), of ETTh1 from Zeng et al. (AAAI 2023), which ran it again.
type published struct {
	name  string
	month int // bins
	step  time.Duration
	mse   map[int]float64 // by horizon, in bins
}

var publishedTable = []published{
	{"ETTh1", 720, time.Hour, map[int]float64{96: 0.079, 192: 0.104, 336: 0.119, 720: 0.142}},
	{"ETTm2", 2880, 15 * time.Minute, map[int]float64{96: 0.072, 192: 0.102, 336: 0.130, 720: 0.178}},
}

var publishedHorizons = []int{96, 192, 336, 720}

// tableRow is one forecaster in one cell; errors are of z-scored values.
type tableRow struct {
	Dataset   string   `json:"dataset"`
	Horizon   int      `json:"horizon"`
	Model     string   `json:"model"`
	MSE       *float64 `json:"mse"`
	MAE       *float64 `json:"mae"`
	Published float64  `json:"published_mse"`
	Windows   int      `json:"windows"`
	Seconds   float64  `json:"seconds"` // to learn and to forecast
	Note      string   `json:"note,omitempty"`
	Partial   bool     `json:"partial,omitempty"` // it was interrupted when so many windows were measured
}

func (a *app) forecastTable(ctx context.Context, f evalFlags) error {
	cell := func(p published, h int) bool { return f.only == "" || f.only == fmt.Sprintf("%s/%d", p.name, h) }
	var rows []tableRow
	var failed error // interrupted, after some rows
	for _, p := range publishedTable {
		if !slices.ContainsFunc(publishedHorizons, func(h int) bool { return cell(p, h) }) {
			continue
		}
		s, err := readETT(f.table, p)
		if err != nil {
			return err
		}
		for _, h := range publishedHorizons {
			if !cell(p, h) || failed != nil {
				continue
			}
			cells, err := a.tableCell(ctx, p, s, h, f)
			rows = append(rows, cells...)
			if err != nil && (ctx.Err() == nil || len(rows) == 0) {
				return err
			}
			failed = err
		}
	}
	if len(rows) == 0 {
		return usagef("-only %q: want one of ETTh1 and ETTm2, a slash, and one of 96, 192, 336 and 720", f.only)
	}
	if a.asJSON {
		return errors.Join(failed, json.NewEncoder(a.out).Encode(rows))
	}
	return errors.Join(failed, a.writeTable(rows, failed != nil))
}

// writeTable prints the table for people.
func (a *app) writeTable(rows []tableRow, partial bool) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CELL\tFORECASTER\tMSE\tMAE\tFEDFORMER-F\tWINDOWS\tTOOK")
	for _, r := range rows {
		fmt.Fprintf(t, "%s/%d\t%s\t%s\t%s\t%.3f\t%d\t%.0f s\n", r.Dataset, r.Horizon, r.Model, fixedTo(3, r.MSE), fixedTo(3, r.MAE), r.Published, r.Windows, r.Seconds)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Note != "" {
			fmt.Fprintf(a.out, "%s/%d %s: %s\n", r.Dataset, r.Horizon, r.Model, r.Note)
		}
	}
	if partial {
		fmt.Fprintln(a.out, "PARTIAL: it was interrupted; the last cell is of as many windows as stand there")
	}
	return nil
}

// tableCell measures the forecasters on the test months: naive, nlinear of the input asked for, seasonal, the mean of these two, sparsetsf of seven
// days, and FEDformer where that is asked for.
func (a *app) tableCell(ctx context.Context, p published, s forecast.Series, h int, f evalFlags) ([]tableRow, error) {
	const day = 24 * time.Hour
	first := 16 * p.month
	o := forecast.BacktestOptions{Steps: h, First: first, Every: 1, Whole: true}
	if f.origins > 0 {
		o.Every, _ = strideOf(len(s.Values)-h-first+1, f.origins, int(day/p.step))
	}
	interrupted := func() error {
		return fmt.Errorf("forecast eval -table: interrupted in the cell %s/%d", p.name, h)
	}
	before, learnt := s.Until(s.At(first)), map[string]float64{}
	var maps []forecast.Forecaster
	for _, o := range []forecast.WindowOptions{{Kind: forecast.NLinear, Input: f.input}, {Kind: forecast.SparseTSF}} {
		o.Horizon, o.Season = h, day
		var m forecast.Forecaster
		var err error
		began := time.Now()
		if !during(ctx, func() { m, err = forecast.TrainWindow(before, o) }) {
			return nil, interrupted()
		}
		if err != nil {
			return nil, err
		}
		learnt[m.Name()] = time.Since(began).Seconds()
		maps = append(maps, m)
	}
	nlinear, sparse := maps[0], maps[1]
	notes := map[string]string{}
	seasonal, ensemble := seasonalPair([]time.Duration{day, 7 * day}, f.workers, func() forecast.Forecaster { return nlinear })
	contenders := []contender{single(forecast.NewNaive(day)), seasonal, single(nlinear), single(sparse), ensemble}
	if f.fedformer {
		began := time.Now()
		m, note, err := a.learntFEDformer(ctx, before, forecast.FEDformerOptions{Horizon: h, Input: f.input, Seasons: []time.Duration{day}}, f.fedformerFlags)
		if err != nil {
			return nil, err
		}
		defer func() { _ = m.Close() }() // it was only read
		learnt[m.Name()], notes[m.Name()] = time.Since(began).Seconds(), note
		contenders = append(contenders, single(m))
	}
	q := asking{series: s, steps: h, threads: f.workers, lean: true}
	for at := first; at <= len(s.Values)-h; at += o.Every {
		q.origins = append(q.origins, at)
	}
	all, asked := a.record(ctx, contenders, q)
	if asked == 0 {
		return nil, interrupted()
	}
	var rows []tableRow
	for _, c := range all {
		r, err := forecast.Backtest(c, s, o)
		if err != nil {
			return nil, err
		}
		if c.why != nil {
			return nil, fmt.Errorf("%s/%d: %w", p.name, h, c.why)
		}
		rows = append(rows, tableRow{
			Dataset: p.name, Horizon: h, Model: c.name, MSE: figure(r.RMSE * r.RMSE), MAE: figure(r.MAE), Published: p.mse[h], Windows: r.Origins - r.Failed,
			Seconds: learnt[c.name] + c.took.Seconds(), Note: notes[c.name], Partial: asked < len(q.origins),
		})
	}
	if asked < len(q.origins) {
		return rows, interrupted()
	}
	return rows, nil
}

// readETT reads column OT of a data set, z-scored by the mean and the deviation of the first twelve months. Forecasters of rates know nothing below
// zero, and ratios of levels: the values are lifted so far above it, by eleven times their range in these months, that a ratio is nearly a difference.
func readETT(folder string, p published) (forecast.Series, error) {
	path := filepath.Join(folder, p.name+".csv")
	f, err := os.Open(path)
	var r io.Reader = f
	if errors.Is(err, os.ErrNotExist) {
		path += ".gz"
		if f, err = os.Open(path); errors.Is(err, os.ErrNotExist) {
			return forecast.Series{}, fmt.Errorf("read the data set %s: %s has neither %s.csv nor %[3]s.csv.gz: name the folder that has one of them", p.name, folder, p.name)
		} else if err == nil {
			r, err = gzip.NewReader(bufio.NewReader(f))
		}
	}
	if err != nil {
		return forecast.Series{}, fmt.Errorf("read the data set %s: %w", p.name, err)
	}
	defer f.Close()
	s, err := parseETT(r, p)
	if err != nil {
		return s, fmt.Errorf("read the data set %s: %s: %w", p.name, path, err)
	}
	learn := s.Values[:12*p.month]
	mean, square := 0.0, 0.0
	for _, v := range learn {
		mean += v / float64(len(learn))
	}
	for _, v := range learn {
		square += (v - mean) * (v - mean) / float64(len(learn))
	}
	deviation := math.Sqrt(square)
	if deviation == 0 {
		return s, fmt.Errorf("read the data set %s: %s: column OT is %v throughout", p.name, path, mean)
	}
	lift := 11*(slices.Max(learn)-slices.Min(learn)) - slices.Min(learn)
	for i, v := range s.Values {
		s.Values[i] = (v + lift) / deviation
	}
	return s, nil
}

// parseETT reads the first 20 months of lines "date,…,OT".
func parseETT(r io.Reader, p published) (forecast.Series, error) {
	s := forecast.Series{Step: p.step}
	in := csv.NewReader(r)
	head, err := in.Read()
	if err != nil {
		return s, err
	}
	if len(head) < 2 || head[0] != "date" || head[len(head)-1] != "OT" {
		return s, fmt.Errorf("its header is %q: want date first and OT last", strings.Join(head, ","))
	}
	for len(s.Values) < 20*p.month {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return s, fmt.Errorf("it has %d rows of values; the table needs %d", len(s.Values), 20*p.month)
		}
		if err != nil {
			return s, err
		}
		at, err := time.Parse(time.DateTime, row[0])
		if err != nil {
			return s, err
		}
		if len(s.Values) == 0 {
			s.Start = at
		}
		if !at.Equal(s.End()) {
			return s, fmt.Errorf("its row %d is of %s: want %s", len(s.Values)+2, row[0], s.End().Format(time.DateTime))
		}
		v, err := strconv.ParseFloat(row[len(row)-1], 64)
		if err != nil {
			return s, err
		}
		s.Values = append(s.Values, v)
	}
	return s, nil
}
